package ebpf

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// route puts the second container on another network of the first one's domain,
// with both containers' kernels using the router, and returns its addresses.
func (w *twoHosts) route(t testing.TB) (to4, to6 netip.Addr) {
	t.Helper()
	to4, to6 = netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("fd00:10::2")
	mac := model.MAC{2, 5, 0, 0, 0, 2}
	gateways := [2]netip.Addr{netip.MustParseAddr("10.9.0.254"), netip.MustParseAddr("10.10.0.254")}
	for i := range w.states {
		pic := w.states[i]
		for id := model.NetworkID(1); id <= 2; id++ {
			pic.Networks = pic.Networks.Set(id, &desired.Network{
				ID: id, Encap: model.EncapVXLAN, Tag: 99 + uint32(id), Joined: 5, Gateway: gateways[id-1],
				Subnet: netip.PrefixFrom(gateways[id-1], 24).Masked(), Subnet6: netip.MustParsePrefix([]string{"fd00:9::/64", "fd00:10::/64"}[id-1]),
			})
		}
		if i == 0 {
			k := desired.RemoteKey{Network: 1, MAC: mac}
			old, _ := pic.Remotes.Get(k)
			r := *old
			r.Network, r.IPv4, r.IPv6 = 2, to4, to6
			pic.Remotes = pic.Remotes.Delete(k).Set(desired.RemoteKey{Network: 2, MAC: mac}, &r)
		} else {
			old, _ := pic.Ports.Get(containerPort)
			o := *old
			o.Network, o.IPv4, o.IPv6 = 2, to4, to6
			pic.Ports = pic.Ports.Set(containerPort, &o)
		}
		w.states[i] = pic
		w.apply(t, i)
	}
	c := w.containers[1]
	run(t, "ip", "-n", c, "addr", "del", containerIP4[1].String()+"/24", "dev", "eth0")
	run(t, "ip", "-n", c, "addr", "del", containerIP6[1].String()+"/64", "dev", "eth0")
	run(t, "ip", "-n", c, "addr", "add", to4.String()+"/24", "dev", "eth0")
	run(t, "ip", "-n", c, "addr", "add", to6.String()+"/64", "dev", "eth0", "nodad")
	for i, c := range w.containers {
		run(t, "ip", "-n", c, "route", "add", "default", "via", gateways[i].String())
		run(t, "ip", "-n", c, "-6", "route", "add", "default", "via", desired.RouterMAC.LinkLocal().String(), "dev", "eth0")
	}
	return to4, to6
}

// TestRoutedStreamsPassBetweenHosts: two hosts' containers on two networks, with real network stacks:
// the router is found, packets take one hop, its errors are understood, a packet as
// big as the containers' MTU passes whole, TCP flows, and the receiving host believes
// all of it.
func TestRoutedStreamsPassBetweenHosts(t *testing.T) {
	w := newTwoHosts(t, 1600, 1550)
	to4, to6 := w.route(t)
	for _, x := range []struct {
		to, nobody, outside netip.Addr
		big                 string // of a ping's payload that makes 1,550 bytes
		expired             string
	}{
		{to4, to4.Next(), netip.MustParseAddr("8.8.8.8"), "1522", "Time to live exceeded"},
		{to6, to6.Next(), netip.MustParseAddr("2001:db8::1"), "1502", "Time exceeded: Hop limit"},
	} {
		ping := func(args ...string) string {
			t.Helper()
			out, _ := w.in(t, 0, append([]string{"ping", "-c", "2", "-i", "0.05", "-W", "2"}, args...)...)
			return out
		}
		says := func(what, out, want string) {
			t.Helper()
			if !strings.Contains(out, want) {
				t.Errorf("%s: want %q:\n%s", what, want, out)
			}
		}
		says("ping", ping("-M", "do", "-s", x.big, x.to.String()), "ttl=63")
		says("ping of one hop", ping("-t", "1", x.to.String()), x.expired)
		says("ping of two hops", ping("-t", "2", x.to.String()), " 0% packet loss")
		says("to nobody", ping(x.nobody.String()), "nreachable")
		says("outside", ping(x.outside.String()), "nreachable")
		w.iperf(t, x.to, "-n", "50M")
	}
	// Not "spoof": the container's own stack looks for its former addresses.
	if n := w.drops(t, 1)["unknown-source"]; n != 0 {
		t.Errorf("the receiving host does not believe %d packets", n)
	}
}

// TestRestartLosesNoRoutedPing restarts the sender's driver under a stream of routed pings, and
// expects every answer.
func TestRestartLosesNoRoutedPing(t *testing.T) {
	w := newTwoHosts(t, 1600, 1550)
	to4, to6 := w.route(t)
	for _, to := range []netip.Addr{to4, to6} {
		done := make(chan string, 1)
		go func() {
			out, _ := w.in(t, 0, "ping", "-q", "-i", "0.002", "-c", "500", to.String())
			done <- out
		}()
		for restarts := 0; ; restarts++ {
			select {
			case out := <-done:
				if !strings.Contains(out, " 0% packet loss") || restarts == 0 {
					t.Errorf("%d restarts:\n%s", restarts, out)
				}
			default:
				w.restart(t, 0)
				continue
			}
			break
		}
	}
}
