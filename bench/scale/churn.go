package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// stay is how long an endpoint stays that comes and goes.
const stay = 5 * time.Second

// atOnce is how many requests may be under way; more are begun late.
const atOnce = 256

// came is an endpoint that has come.
type came struct {
	network int
	id      string
	addr    netip.Addr
}

// churn has endpoints come and go at an even rate.
type churn struct {
	z      sizes
	c      *api.Client
	tell   func(question) error // of an answer of the API
	chance *rand.Rand
	added  []int // by network: how many have come

	mu    sync.Mutex
	here  []came // longest first
	took  []time.Duration
	first error // that failed
}

// answers tell how the API did.
type answers struct {
	Took   figures `json:"took"`
	Second float64 `json:"changesPerSecond"` // that were answered
}

// run works for the time that the sizes say, and returns how the API answered. It
// fails with the first request that failed.
func (u *churn) run(ctx context.Context) (answers, error) {
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, atOnce)
	begun, told := time.Now(), time.Now()
	u.added = make([]int, u.z.Networks)
	for n := 0; ; n++ {
		at := begun.Add(time.Duration(float64(n) / u.z.Changes * float64(time.Second)))
		if at.Sub(begun) >= u.z.For || u.failed() != nil || waiting.Pause(ctx, time.Until(at)) != nil {
			break
		}
		slots <- struct{}{}
		do := u.next()
		all.Go(func() {
			do(ctx)
			<-slots
		})
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "  %d changes begun in %.0f s\n", n+1, time.Since(begun).Seconds())
		}
	}
	all.Wait()
	took := time.Since(begun)
	if err := u.failed(); err != nil {
		return answers{}, err
	}
	return answers{Took: summary(u.took), Second: float64(len(u.took)) / took.Seconds()}, ctx.Err()
}

func (u *churn) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.first
}

// next is the next change: the endpoint that came first goes, if enough are here.
func (u *churn) next() func(context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.here) > int(u.z.Changes*stay.Seconds()/2) {
		e := u.here[0]
		u.here = u.here[1:]
		return func(ctx context.Context) { u.goes(ctx, e) }
	}
	network := u.chance.IntN(u.z.Networks)
	n := u.added[network]
	u.added[network]++
	host := hostName(u.z.hosts(network) + u.chance.IntN(u.z.Spread))
	e := came{network, fmt.Sprintf("late%d-%d", network, n), u.z.addedAddress(network, n)}
	labels := u.z.labels(network, n)
	return func(ctx context.Context) { u.comes(ctx, e, host, labels) }
}

func (u *churn) comes(ctx context.Context, e came, host string, labels map[string]string) {
	begun := now()
	_, err := u.c.CreateEndpoint(ctx, api.CreateEndpointRequest{
		TenantName: u.z.tenant(e.network), NetworkName: networkName(e.network), ServiceName: groupName(e.network),
		EndpointID: e.id, ConfigEP: api.ConfigEP{Host: host, IPAddress: e.addr.String(), Labels: labels},
	})
	if u.answered(begun, e, false, err) {
		u.mu.Lock()
		u.here = append(u.here, e)
		u.mu.Unlock()
	}
}

func (u *churn) goes(ctx context.Context, e came) {
	begun := now()
	_, err := u.c.DeleteEndpoint(ctx, api.DeleteEndpointRequest{TenantName: u.z.tenant(e.network), NetworkName: networkName(e.network), EndpointID: e.id})
	u.answered(begun, e, true, err)
}

// answered tells of an answer, if it is a good one.
func (u *churn) answered(begun time.Duration, e came, gone bool, err error) bool {
	at := now()
	if err == nil {
		err = u.tell(question{Addr: e.addr, Gone: gone, Asked: begun, Answered: at, Wanted: u.z.Spread})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		if u.first == nil {
			u.first = fmt.Errorf("endpoint %s (%s, gone %t): %w", e.id, e.addr, gone, err)
		}
		return false
	}
	u.took = append(u.took, at-begun)
	return true
}
