package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

const (
	clients = 8
	// perGeneration is how many requests a client makes before objects get other
	// names: a history with many requests of unknown outcome is slow to judge.
	perGeneration = 120
	// clientPatience is for how long a client waits for an answer.
	clientPatience = 3 * time.Second
	// lookAway is for how long a client avoids a server that has failed it, and for how
	// long it pauses after all have.
	lookAway = 200 * time.Millisecond

	revisionHeader = "X-Contiv-Revision"
)

// crowd are the clients, and what they have seen.
type crowd struct {
	t       *testing.T
	urls    func() []string // of netmasters, where they are now
	seed    uint64
	objects []object
	index   map[string]int
	begin   time.Time
	asked   atomic.Int64

	mu      sync.Mutex
	history []porcupine.Operation
	tally   map[string]int // by kind and outcome
}

// newCrowd has all objects that total requests will be about.
func newCrowd(t *testing.T, seed uint64, total int, urls func() []string) *crowd {
	t.Helper()
	c := &crowd{t: t, urls: urls, seed: seed, index: map[string]int{}, begin: time.Now(), tally: map[string]int{}}
	for g := range total/clients/perGeneration + 1 {
		for _, k := range kinds {
			for slot := range k.slots {
				o := object{k, slot, g}
				c.index[o.id()] = len(c.objects)
				c.objects = append(c.objects, o)
			}
		}
	}
	return c
}

// ask has all clients ask, each by its own dice, until all have made their part of
// total requests, or ctx ends.
func (c *crowd) ask(ctx context.Context, total int) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: 2 * clients}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport, Timeout: clientPatience}
	perKind := len(c.objects) / (total/clients/perGeneration + 1)
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			chance := rand.New(rand.NewPCG(c.seed, uint64(n))) //nolint:gosec // a test's
			var away [8]time.Time
			for i := 0; i < total/clients && ctx.Err() == nil; i++ {
				generation := i / perGeneration
				if i%perGeneration == 0 && i > 0 { // tidy what had the former names
					for k := (generation - 1) * perKind; k < generation*perKind; k++ {
						if k%clients == n && chance.IntN(8) > 0 {
							c.one(ctx, hc, n, chance, &away, asked{object: k, method: http.MethodDelete})
						}
					}
				}
				in := asked{object: generation*perKind + chance.IntN(perKind), method: http.MethodGet}
				switch chance.IntN(10) {
				case 0, 1, 2, 3:
					in.method, in.value = http.MethodPut, c.objects[in.object].pick(chance)
				case 4, 5, 6:
					in.method = http.MethodDelete
				}
				c.one(ctx, hc, n, chance, &away, in)
			}
		})
	}
	all.Wait()
}

// one makes one request of one netmaster, and keeps what is known of it.
func (c *crowd) one(ctx context.Context, hc *http.Client, client int, chance *rand.Rand, away *[8]time.Time, in asked) {
	urls := c.urls()
	at := chance.IntN(len(urls))
	for range urls { // one that has failed it lately is asked only if all have
		if time.Since(away[at]) > lookAway {
			break
		}
		at = (at + 1) % len(urls)
	}
	call := time.Since(c.begin)
	out, _ := c.send(ctx, hc, urls[at], c.objects[in.object], in)
	answered := time.Since(c.begin)
	c.asked.Add(1)
	c.keep(client, in, out, call, answered)
	if out.outcome != unknown && out.outcome != unsent {
		return
	}
	away[at] = time.Now()
	if !slices.ContainsFunc(away[:len(urls)], func(t time.Time) bool { return time.Since(t) > lookAway }) {
		_ = waiting.Pause(ctx, lookAway) // the store is away: what is asked meanwhile says nothing of it
	}
}

func (c *crowd) keep(client int, in asked, out got, call, answered time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally[c.objects[in.object].name+" "+in.method+" "+out.outcome.String()]++
	switch {
	case out.outcome == unsent, in.method == http.MethodGet && out.outcome > absent:
		return // nothing is known
	case out.outcome == unknown:
		answered = 1 << 62
	}
	c.history = append(c.history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(call), Return: int64(answered)})
}

// send makes a request, and says what its answer means.
func (c *crowd) send(ctx context.Context, hc *http.Client, url string, o object, in asked) (out got, text string) {
	method, path, body := o.request(in)
	req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return got{outcome: unsent}, ""
	}
	resp, err := hc.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return got{outcome: unsent}, ""
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
	}
	if err != nil {
		return got{outcome: unknown}, ""
	}
	text = fmt.Sprintf("%s %s: %d %s", method, path, resp.StatusCode, clip(b))
	switch code := resp.StatusCode; {
	case code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		return got{outcome: unknown}, text
	case code == http.StatusNotFound:
		return got{outcome: absent}, text
	case code == http.StatusBadRequest || code == http.StatusConflict || code == http.StatusUnprocessableEntity:
		return got{outcome: refused}, text
	case code != http.StatusOK:
		c.t.Errorf("answered with a status that nobody expects: %s", text)
		return got{outcome: unknown}, text
	}
	if in.method != http.MethodDelete {
		if out.value, err = o.read(b); err != nil {
			c.t.Errorf("%s: %v", text, err)
		}
	}
	if in.method != http.MethodGet {
		if out.revision, err = strconv.ParseInt(resp.Header.Get(revisionHeader), 10, 64); err != nil {
			c.t.Errorf("%s: %s: %v", text, revisionHeader, err)
		}
	}
	return out, text
}

func clip(b []byte) []byte { return b[:min(len(b), 300)] }

// look reads all objects through each netmaster, which all must answer by now: a busy
// machine is asked again.
func (c *crowd) look(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for _, url := range c.urls() {
		var all sync.WaitGroup
		for n := range clients {
			all.Go(func() {
				for k := n; k < len(c.objects) && ctx.Err() == nil; k += clients {
					in := asked{object: k, method: http.MethodGet}
					call := time.Since(c.begin)
					out, text := c.send(ctx, hc, url, c.objects[k], in)
					for until := time.Now().Add(patience); out.outcome > absent && time.Now().Before(until); out, text = c.send(ctx, hc, url, c.objects[k], in) {
						_ = waiting.Pause(ctx, 100*time.Millisecond) // the loop's condition tells
					}
					if out.outcome > absent {
						c.t.Errorf("at the end %s does not tell of %s: %s %s", url, c.objects[k], out.outcome, text)
					}
					c.keep(n, in, out, call, time.Since(c.begin))
				}
			})
		}
		all.Wait()
	}
}

// sums are how many requests of which outcome there were.
func (c *crowd) sums() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[string]int{}
	for what, n := range c.tally {
		part := strings.Fields(what)
		by[strings.Join(part[len(part)-2:], " ")] += n
	}
	var out []string
	for _, what := range slices.Sorted(maps.Keys(by)) {
		out = append(out, fmt.Sprintf("%s %d", what, by[what]))
	}
	return strings.Join(out, ", ")
}

// barren are the kinds of which nothing was made, read or deleted: a run that asks
// for nothing finds nothing.
func (c *crowd) barren() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kinds {
		for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
			if what := k.name + " " + method + " " + done.String(); c.tally[what] == 0 {
				out = append(out, what)
			}
		}
	}
	return out
}
