//go:build integration

package slice

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestServicesComeAndGo makes and deletes services, 200 with -full, half of them used
// by TCP and UDP while they are there, beside a service whose connections go on: these
// lose nothing, and the hosts hold in the end what they held before.
func TestServicesComeAndGo(t *testing.T) {
	shared(t)
	onOne(t, both, servicesComeAndGo)
}

func servicesComeAndGo(t *testing.T, driver string) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	c := up(t, driver, "comego", 2)
	server := func(name, host string) testcluster.ContainerSpec {
		s := spec(name, host, "blue/net")
		s.Labels = map[string]string{"app": "web"}
		return s
	}
	c.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 net",
		"service create -t blue -s net -l app=web -p 8000:80:TCP -p 8000:80:UDP --ip 10.1.0.100 web")
	c.add(server("web1", "h1"), server("web2", "h2"), spec("c", "h1", "blue/net"))
	lasting := c.exchange([]netip.Addr{netip.MustParseAddr("10.1.0.100")}, 8)
	lasting.goOn("at first", "")
	held := func() (out map[string]int) {
		out = map[string]int{}
		for _, h := range c.Hosts() {
			// Who only provides knows of no service: there the connections of one that
			// is gone age as all do.
			for what, n := range c.objectCounts(h, h.Name == "h1") {
				out[h.Name+" "+what] = n
			}
		}
		return out
	}
	before := held()
	c.holds(ctx, "the hosts to hold the same for a while", func() string { // counts of clients are written every 10 s
		was := before
		before = held()
		return cmp.Diff(was, before)
	}, 11*time.Second)
	n := 20
	if conformance.Full() {
		n = 200
	}
	client := c.client()
	defer client.Close()
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 1, 0, byte(200 + i%11)})
		s := api.ServiceLB{
			TenantName: "blue", ServiceName: fmt.Sprint("s", i%7), NetworkName: "net", IPAddress: addr.String(),
			Selectors: []string{"app=web"}, Ports: []string{"9000:80:TCP", "9000:80:UDP"}, Affinity: []string{"off", "1h"}[i%2],
		}
		if _, err := client.ServiceLBs().Create(ctx, s); err != nil {
			t.Fatal(err)
		}
		if i%4 < 2 { // the others are gone before hosts have seen much of them
			c.reached(ctx, addr, 9000)
		}
		if err := client.ServiceLBs().Delete(ctx, "blue:"+s.ServiceName); err != nil {
			t.Fatal(err)
		}
	}
	lasting.goOn("after others have come and gone", "")
	c.holds(ctx, "the hosts to hold what they held", func() string { return cmp.Diff(before, held()) }, 0)
	lasting.end("")
	t.Logf("after %d services as before: %v", n, summed(before))
}

// holds waits until there has been no difference for a time.
func (c *cluster) holds(ctx context.Context, what string, diff func() string, still time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // a deleted service refuses its clients for one
	defer cancel()
	since := time.Now()
	if err := testcluster.Until(ctx, what, func(context.Context) error {
		if d := diff(); d != "" {
			since = time.Now()
			return fmt.Errorf("-before +after:\n%s", d)
		}
		if time.Since(since) < still {
			return fmt.Errorf("for %v only", time.Since(since))
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// reached has c reach a service by TCP and UDP.
func (c *cluster) reached(ctx context.Context, addr netip.Addr, port uint16) {
	c.t.Helper()
	for _, proto := range []string{"tcp", "udp"} {
		if err := testcluster.Until(ctx, fmt.Sprint("an answer of ", addr), func(context.Context) error {
			if a := c.space("c").Probe(ctx, testcluster.Target{Proto: proto, Addr: addr, Port: port}, time.Second); a.Verdict != testcluster.OK {
				return fmt.Errorf("it is %s", a)
			}
			return nil
		}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// objectCounts is what a host's data plane holds (testcluster.Host.ObjectCounts).
func (c *cluster) objectCounts(h *testcluster.Host, connections bool) map[string]int {
	c.t.Helper()
	out, err := h.ObjectCounts(c.t.Context(), connections)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// summed is what is held, without what each line is.
func summed(held map[string]int) map[string]int {
	out := maps.Clone(held)
	for k, n := range held {
		if host, what, _ := strings.Cut(k, " "); strings.ContainsAny(what, " =") {
			delete(out, k)
			kind, _, _ := strings.Cut(what, "=")
			out[host+" "+kind+"="] += n
		}
	}
	return out
}
