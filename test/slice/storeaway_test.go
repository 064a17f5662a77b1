//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// evictsSoon has netmasters give up what is on hosts as early as they may be told to.
func evictsSoon(cfg *testcluster.Config) {
	cfg.MasterArgs = append(cfg.MasterArgs, "--evict-after", "1m")
}

// hostsAway waits until so many hosts are away.
func (c *cluster) hostsAway(want int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	err := testcluster.Until(ctx, fmt.Sprintf("%d hosts to be away", want), func(ctx context.Context) error {
		hosts, err := c.client().Hosts(ctx)
		if err != nil {
			return err
		}
		away := 0
		for _, h := range hosts {
			if h.State == "away" && h.VXLANPort == 0 { // nor is it registered any more
				away++
			}
		}
		if len(hosts) != len(c.Hosts()) || away != want {
			return fmt.Errorf("%d of %d are", away, len(hosts))
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestHostsOutliveEverybodyAway: netmaster and the store are away (for ten minutes with -full), then
// no agent reaches them until all count as away (ten minutes more, of a grace time of one),
// and then they are back one by one. No flow that lives loses anything, and new
// connections work.
func TestHostsOutliveEverybodyAway(t *testing.T) {
	shared(t)
	onOne(t, both, everybodyAway)
}

func everybodyAway(t *testing.T, driver string) {
	c := up(t, driver, "away", 2, evictsSoon)
	c.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 net",
		"service create -t blue -s net -l app=web -p 8000:80:TCP -p 8000:80:UDP --affinity off --ip 10.1.0.100 web")
	for i, host := range []string{"h1", "h2"} {
		s := spec(fmt.Sprint("web", i+1), host, "blue/net")
		s.Labels = map[string]string{"app": "web"}
		c.add(s)
	}
	c.add(spec("c", "h1", "blue/net"))
	vip := netip.MustParseAddr("10.1.0.100")
	x := c.exchange([]netip.Addr{vip}, 16)
	works := func(when string) {
		t.Helper()
		x.goOn(when, "")
		got := map[string]bool{}
		for range 40 {
			for _, proto := range []string{"tcp", "udp"} {
				a := c.space("c").Probe(t.Context(), testcluster.Target{Proto: proto, Addr: vip, Port: 8000}, 5*time.Second)
				if a.Verdict != testcluster.OK {
					t.Errorf("%s: a new connection: %s", when, a)
					return
				}
				got[a.From] = true
			}
		}
		if len(got) != 2 {
			t.Errorf("%s: new connections go to %v only", when, got)
		}
	}
	long := func() {
		if conformance.Full() {
			<-time.After(10 * time.Minute)
		}
	}
	cables := func(up bool, hosts ...*testcluster.Host) {
		t.Helper()
		for _, h := range hosts {
			if err := h.NS.SetLink("ctl0", up); err != nil {
				t.Fatal(err)
			}
		}
	}
	works("at first")
	before := c.scrape()
	if err := errors.Join(c.Process("netmaster").Kill(), c.Process("etcd").Kill()); err != nil {
		t.Fatal(err)
	}
	works("netmaster and the store are away")
	long()
	works("they are still")
	cables(false, c.Hosts()...)
	if err := errors.Join(c.Store.StartEtcd(t.Context()), c.Masters.StartMaster(t.Context())); err != nil {
		t.Fatal(err)
	}
	c.hostsAway(2)
	c.alertsFire(before, c.scrapedWhen("both hosts to be away", map[string]float64{"contiv_hosts_many_away": 1}), "ContivManyHostsAway")
	works("all hosts are away")
	long()
	works("they are still")
	c.hasEndpoints("blue:net", 3)
	for i, h := range c.Hosts() {
		cables(true, h)
		c.hostsAway(len(c.Hosts()) - 1 - i)
		works(h.Name + " is back")
	}
	c.hasEndpoints("blue:net", 3)
	again, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := testcluster.Until(again, "h2 to attach containers, as it follows the store again", func(ctx context.Context) error {
		_, err := c.AddContainer(ctx, spec("new", "h2", "blue/net"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Serve("new", "tcp/80"); err != nil {
		t.Fatal(err)
	}
	c.wants("c new tcp/80", testcluster.OK)
	x.end("")
}

// TestEvictionTakesTheFlagsTime: what is on a host that is away is given up after the time that the flag
// says, though netmaster ends and begins meanwhile; what is on the other is not.
func TestEvictionTakesTheFlagsTime(t *testing.T) {
	shared(t)
	if !conformance.Full() {
		t.Skip("it waits for minutes; see TestEndpointsAreReleasedAfterTheGraceTime of control")
	}
	on(t, 1, []string{testcluster.DriverEBPF}, func(t *testing.T, driver string) {
		c := up(t, driver, "evict", 2, evictsSoon)
		c.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 net")
		c.add(spec("a", "h1", "blue/net"), spec("b", "h2", "blue/net"))
		counted := func(least int64) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if err := testcluster.Until(ctx, fmt.Sprintf("h2 to have been away for %d s", least), func(ctx context.Context) error {
				h, err := c.client().Host(ctx, "h2")
				if err == nil && (h.AwaySeconds < least || h.Endpoints != 1) {
					err = fmt.Errorf("it is for %d s, and has %d endpoints", h.AwaySeconds, h.Endpoints)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		well := c.scrape()
		if err := c.host("h2").KillAgent(); err != nil {
			t.Fatal(err)
		}
		counted(30)
		if err := c.Process("netmaster").Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Masters.StartMaster(t.Context()); err != nil {
			t.Fatal(err)
		}
		counted(30) // of which nothing is lost
		again := time.Now()
		counted(50)
		c.alertsFire(well, c.scrape(), "ContivGraceEnds")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := testcluster.Until(ctx, "h2's endpoint to be given up", func(ctx context.Context) error {
			n, err := c.endpoints(ctx, "blue:net")
			if err == nil && n != 1 {
				err = fmt.Errorf("there are %d", n)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Logf("given up %s after netmaster began again", time.Since(again).Round(time.Second))
		if err := c.host("h2").StartAgent(t.Context()); err != nil { // it puts back what runs there
			t.Fatal(err)
		}
		c.hasEndpoints("blue:net", 2)
		c.wants("a b tcp/80", testcluster.OK)
	})
}
