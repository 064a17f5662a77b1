//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestServicesSurviveRestarts restarts netplugin, by its end and by kill -9, on the hosts
// of clients, of providers and of who is routed to, under heavy streams, pings and
// datagrams through services and routes. Nothing is reset, every byte arrives, the data
// planes drop nothing, and no more is lost than when netplugin restarts on a host that
// has no part in it.
func TestServicesSurviveRestarts(t *testing.T) { onOne(t, both, restartUnderServices) }

func restartUnderServices(t *testing.T, kind string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	u := up(t, kind, "again", 3).underLoad(ctx, kind)
	vip, vip6 := netip.MustParseAddr("10.1.1.100"), netip.MustParseAddr("fd00:1::100")
	const echoPort, every = 7000, 10 * time.Millisecond
	u.netctl("tenant create blue", "global set --fwd-mode routing",
		"network create -t blue -s 10.1.1.0/24 -g 10.1.1.254 --subnetv6 fd00:1::/64 --gatewayv6 fd00:1::fe net",
		"network create -t blue -s 10.1.2.0/24 -g 10.1.2.254 --subnetv6 fd00:2::/64 --gatewayv6 fd00:2::fe far",
		"service create -t blue -s net -l app=web -p 5201:5201:TCP -p 7000:7000:UDP --affinity off --ip "+vip.String()+" --ip6 "+vip6.String()+" web")
	web := map[string]string{"app": "web"}
	u.add(spec("c", "h1", "blue/net"), spec("s", "h2", "blue/far"), spec("near", "h1", "blue/far"), spec("idle", "h3", "blue/net"),
		labelled("p1", "h1", web), labelled("p2", "h2", web))
	for _, name := range []string{"s", "near", "p1", "p2"} {
		u.sink(name)
	}
	for _, name := range []string{"p1", "p2"} {
		stop, err := u.reflector(name, fmt.Sprintf(":%d", echoPort))
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	var streams []*heavy
	for _, to := range []struct {
		addr netip.Addr
		who  string
	}{{vip, "p1"}, {vip, "p2"}, {u.addr("s", "4"), "s"}, {u.addr("near", "4"), "near"}} {
		h := u.reached(netip.AddrPortFrom(to.addr, heavyPort), to.who)
		go h.run()
		streams = append(streams, h)
	}
	var pings []*testcluster.Pinger
	keep := func(p *testcluster.Pinger, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() }) // what it tells has been read
		pings = append(pings, p)
	}
	keep(u.space("c").StartPing(u.addr("s", "4"), every))
	keep(u.space("c").StartPing(u.addr("s", "6"), every))
	keep(u.space("c").StartPing(u.addr("near", "4"), every))
	for range 4 { // to whichever provider
		keep(u.space("c").StartDatagrams(netip.AddrPortFrom(vip, echoPort), every))
		keep(u.space("c").StartDatagrams(netip.AddrPortFrom(vip6, echoPort), every))
	}
	u.hush()
	restarts := func(hosts ...string) func() {
		return func() {
			for i, name := range hosts {
				h := u.host(name)
				if i == 0 || conformance.Full() {
					if err := errors.Join(h.RestartAgent(ctx), more(ctx, streams, u.part/2)); err != nil { // kill -9
						t.Fatal(err)
					}
				}
				if i == 1 || conformance.Full() {
					if err := errors.Join(h.Agent().Stop(patience), h.StartAgent(ctx)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	during := func(what string, hosts ...string) (segments uint32, packets int) {
		start := time.Now()
		segments = u.during(what, streams, nil, restarts(hosts...))
		end := time.Now()
		if err := more(ctx, streams, u.part/2); err != nil { // meanwhile the last ones are answered
			t.Fatal(err)
		}
		sent := 0
		for _, p := range pings {
			got := p.Between(start, end)
			sent, packets = sent+got.Sent, packets+got.Lost()
			if got.Received == 0 {
				t.Errorf("%s: %s", what, got)
			}
		}
		t.Logf("%s: of %d pings %d were lost", what, sent, packets)
		return segments, packets
	}
	most := uint32(0) // sent again in a round while the restarts are elsewhere
	u.rounds(func(int) bool {
		segmentsElse, packetsElse := during("restarts elsewhere", "h3", "h3")
		most = max(most, segmentsElse)
		segments, packets := during("restarts", "h1", "h2")
		// The switch in user space waits for a processor as netplugin does.
		return noMore(segments, most) && (packets == 0 || kind == testcluster.DriverOVS && packets <= 2*packetsElse+10)
	})
	for _, h := range streams {
		if err := h.finish(); err != nil {
			t.Error(err)
		}
	}
}

// hush ends what kernels say by themselves for longer than a moment, questions for
// routers (RFC 4861), which data planes drop and count, and waits until nothing has
// been dropped for two seconds.
func (u *underLoad) hush() {
	u.t.Helper()
	spaces := []*testcluster.Namespace{u.Fabric}
	for _, h := range u.Hosts() {
		spaces = append(spaces, h.NS)
	}
	for _, a := range u.Containers() {
		spaces = append(spaces, u.space(a.Name))
	}
	for _, ns := range spaces {
		if err := ns.Do(func() error {
			names, err := filepath.Glob("/proc/sys/net/ipv6/conf/*/router_solicitations")
			for _, name := range names {
				err = errors.Join(err, os.WriteFile(name, []byte("0"), 0o644))
			}
			return err
		}); err != nil {
			u.t.Fatal(err)
		}
	}
	last, at := "", time.Now()
	if err := testcluster.Until(u.ctx, "nothing to be dropped", func(context.Context) error {
		var all []map[string]uint64
		for _, h := range u.Hosts() {
			all = append(all, u.drops(h))
		}
		now := fmt.Sprint(all)
		if now != last {
			last, at = now, time.Now()
		}
		if time.Since(at) < 2*time.Second {
			return errors.New(now)
		}
		return nil
	}); err != nil {
		u.t.Fatal(err)
	}
}
