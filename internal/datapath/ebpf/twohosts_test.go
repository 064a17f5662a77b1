package ebpf

import (
	"context"
	"log/slog"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// twoHosts are two hosts on one machine, with drivers and pin directories of
// their own, an underlay between their interfaces u0, and a container on each,
// with a real network stack on its eth0.
type twoHosts struct {
	hosts, containers [2]string // namespaces
	threads           [2]*thread
	drivers           [2]*Driver
	states            [2]desired.Host
}

var (
	containerIP4 = [2]netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	containerIP6 = [2]netip.Addr{netip.MustParseAddr("fd00:9::1"), netip.MustParseAddr("fd00:9::2")}
)

// containerPort is the host's side of each container's interface.
const containerPort = "cvtwo"

func newTwoHosts(t testing.TB, underlay, inner int) *twoHosts {
	t.Helper()
	require(t, "ip", "ping", "sysctl")
	pins := bpfMount(t)
	w := &twoHosts{hosts: [2]string{namespace(t, "Eh"), namespace(t, "Eh")}, containers: [2]string{namespace(t, "Ec"), namespace(t, "Ec")}}
	big := strconv.Itoa(underlay)
	run(t, "ip", "-n", w.hosts[0], "link", "add", "u0", "mtu", big, "type", "veth", "peer", "name", "u0", "mtu", big, "netns", w.hosts[1])
	vteps := [2]netip.Addr{vtep1, vtep2}
	macs := [2]model.MAC{{2, 5, 0, 0, 0, 1}, {2, 5, 0, 0, 0, 2}}
	mtu := strconv.Itoa(inner)
	for i, ns := range w.hosts {
		run(t, "ip", "-n", ns, "link", "set", "u0", "up")
		run(t, "ip", "-n", ns, "addr", "add", vteps[i].String()+"/24", "dev", "u0")
		c := w.containers[i]
		run(t, "ip", "netns", "exec", c, "sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=0")
		run(t, "ip", "-n", ns, "link", "add", containerPort, "mtu", mtu, "type", "veth", "peer", "name", "eth0", "mtu", mtu, "address", macs[i].String(), "netns", c)
		run(t, "ip", "-n", ns, "link", "set", containerPort, "up")
		// Else it asks for routers when it likes, which the drop counters show.
		run(t, "ip", "netns", "exec", c, "sysctl", "-q", "-w", "net.ipv6.conf.eth0.router_solicitations=0", "net.ipv6.conf.eth0.disable_ipv6=0")
		run(t, "ip", "-n", c, "link", "set", "eth0", "up")
		run(t, "ip", "-n", c, "link", "set", "lo", "up")
		run(t, "ip", "-n", c, "addr", "add", containerIP4[i].String()+"/24", "dev", "eth0")
		run(t, "ip", "-n", c, "addr", "add", containerIP6[i].String()+"/64", "dev", "eth0", "nodad")

		pic := desired.Host{Name: model.HostName(ns), VTEP: vteps[i], ArpMode: model.ArpProxy, Revision: 1}
		pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 100, VTEPs: []netip.Addr{vteps[1-i]}})
		pic.PolicySets = pic.PolicySets.Set(1, &desired.PolicySet{ID: 1, In: []desired.Tier{{Default: model.Deny, Rules: desired.RulesOf(
			desired.Rule{ID: "r1", Action: model.Allow, Identities: desired.IdentitiesOf(300)},
		)}}})
		pic.Ports = pic.Ports.Set(containerPort, &desired.Port{
			IfName: containerPort, Network: 1, MAC: macs[i], IPv4: containerIP4[i], IPv6: containerIP6[i], Identity: 300, Policies: 1,
		})
		o := 1 - i
		pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: 1, MAC: macs[o]}, &desired.Remote{
			Network: 1, MAC: macs[o], IPv4: containerIP4[o], IPv6: containerIP6[o], Identity: 300, VTEP: vteps[o],
		})
		w.states[i], w.threads[i] = pic, newThread(t, ns)
		var err error
		cfg := Config{PinDir: filepath.Join(pins, ns), Log: slog.New(slog.DiscardHandler)}
		cfg.load = func(dir string, sizes map[string]uint32) (*objects, error) { return lend(t, dir, sizes) }
		w.threads[i].do(func() { w.drivers[i], err = open(t.Context(), cfg) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			t.Logf("host %d: drops %v", i, w.drops(t, i))
			if err := w.drivers[i].Close(); err != nil {
				t.Error(err)
			}
		})
		w.apply(t, i)
	}
	return w
}

func (w *twoHosts) apply(t testing.TB, i int) {
	t.Helper()
	var rep driver.Report
	var err error
	w.threads[i].do(func() { rep, err = w.drivers[i].Apply(context.Background(), w.states[i]) })
	if err != nil || len(rep.Problems) > 0 || rep.Ports.Err(containerPort) != nil {
		t.Fatal(err, rep)
	}
}

func (w *twoHosts) drops(t testing.TB, i int) map[string]uint64 {
	t.Helper()
	s, err := w.drivers[i].Stats(context.Background())
	if err != nil {
		t.Error(err)
	}
	return s.Drops
}

// in runs a command in a container and returns what it says, whether it fails or not.
func (w *twoHosts) in(t testing.TB, i int, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", w.containers[i]}, args...)...).CombinedOutput()
	return string(out), err
}

// iperf sends from the first container to the second until enough.
func (w *twoHosts) iperf(t testing.TB, to netip.Addr, enough ...string) string {
	t.Helper()
	return w.iperfAt(t, "5201", to, enough...)
}

// iperfAt is iperf where the second container listens at another port than is asked.
func (w *twoHosts) iperfAt(t testing.TB, port string, to netip.Addr, enough ...string) string {
	t.Helper()
	require(t, "iperf3")
	ctx, cancel := context.WithCancel(t.Context())
	server := exec.CommandContext(ctx, "ip", "netns", "exec", w.containers[1], "iperf3", "-s", "-p", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = server.Wait() }()
	for deadline := time.Now().Add(10 * time.Second); ; {
		out, err := w.in(t, 0, append([]string{"iperf3", "-c", to.String()}, enough...)...)
		if err != nil && strings.Contains(out, "unable to connect") && time.Now().Before(deadline) {
			continue // it does not listen yet
		}
		if err != nil {
			t.Errorf("iperf3: %v: %s", err, out)
		}
		return out
	}
}

// restart ends a host's driver and begins another one.
func (w *twoHosts) restart(t testing.TB, i int) {
	t.Helper()
	if err := w.drivers[i].Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	w.threads[i].do(func() { w.drivers[i], err = open(t.Context(), w.drivers[i].cfg) })
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, i)
}

// TestTunnelCarriesPingsAndStreams sends pings, small and bigger than the path, and a TCP stream,
// through the tunnel between two hosts, over IPv4 and IPv6.
func TestTunnelCarriesPingsAndStreams(t *testing.T) {
	w := newTwoHosts(t, 1600, 1500)
	for _, to := range []string{containerIP4[1].String(), containerIP6[1].String()} {
		for _, size := range []string{"56", "4000"} { // the bigger one comes in fragments
			run(t, "ip", "netns", "exec", w.containers[0], "ping", "-c", "3", "-i", "0.05", "-W", "2", "-s", size, to)
		}
	}
	for l := range strings.SplitSeq(w.iperf(t, containerIP4[1], "-t", "2", "-f", "g"), "\n") {
		if strings.Contains(l, "receiver") {
			t.Log(l)
		}
	}
}

// TestPacketsLeaveWithTheTunnelAddress: packets leave with the tunnel address that other hosts know, whatever
// the routing table would choose; packets from another one are dropped.
func TestPacketsLeaveWithTheTunnelAddress(t *testing.T) {
	w := newTwoHosts(t, 1600, 1500)
	type pair [2]netip.Addr
	addrs := func(a, b string) pair { return pair{netip.MustParseAddr(a), netip.MustParseAddr(b)} }
	set := func(i int, own, others, otherKnown netip.Addr) {
		pic := w.states[i]
		pic.VTEP = own
		n, _ := pic.Networks.Get(1)
		moved := *n
		moved.VTEPs = []netip.Addr{others}
		pic.Networks = pic.Networks.Set(1, &moved)
		for k, r := range pic.Remotes.All() {
			r := *r
			r.VTEP = otherKnown
			pic.Remotes = pic.Remotes.Set(k, &r)
		}
		pic.Tunnels = desired.Map[netip.Addr, model.HostName]{}.Set(otherKnown, "other")
		pic.Revision++
		w.states[i] = pic
		w.apply(t, i)
	}
	ping := func(to netip.Addr) error {
		_, err := w.in(t, 0, "ping", "-c", "2", "-i", "0.05", "-W", "1", to.String())
		return err
	}
	for i, ns := range w.hosts {
		o := strconv.Itoa(2 - i)
		n := strconv.Itoa(i + 1)
		run(t, "ip", "netns", "exec", ns, "sysctl", "-q", "-w", "net.ipv6.conf.u0.disable_ipv6=0")
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
		run(t, "ip", "-n", ns, "addr", "add", "192.168.7.10"+n+"/24", "dev", "u0")
		run(t, "ip", "-n", ns, "addr", "add", "10.77.0."+n+"/32", "dev", "lo")
		run(t, "ip", "-n", ns, "route", "add", "10.77.0."+o+"/32", "dev", "u0", "via", "192.168.7."+o)
		run(t, "ip", "-n", ns, "addr", "add", "fd00:7::"+n+"/64", "dev", "u0", "nodad")
		run(t, "ip", "-n", ns, "addr", "add", "fd00:7::10"+n+"/64", "dev", "u0", "nodad")
		run(t, "ip", "-n", ns, "addr", "add", "107:a8c0::"+n+"/64", "dev", "u0", "nodad") // begins as the kernel writes 192.168.7.1
	}
	for _, x := range []struct {
		name       string
		own, other pair // other: addresses of the same hosts that are not their tunnels'
	}{
		{"the interface's first address", pair{vtep1, vtep2}, addrs("192.168.7.101", "192.168.7.102")},
		{"another address of it", addrs("192.168.7.101", "192.168.7.102"), pair{vtep1, vtep2}},
		{"an address of the loopback", addrs("10.77.0.1", "10.77.0.2"), pair{vtep1, vtep2}},
		{"IPv6", addrs("fd00:7::1", "fd00:7::2"), addrs("fd00:7::101", "fd00:7::102")},
		{"an IPv6 address that begins with the other one's IPv4 address", addrs("107:a8c0::1", "107:a8c0::2"), pair{vtep1, vtep2}},
		{"another IPv6 address", addrs("fd00:7::101", "fd00:7::102"), addrs("fd00:7::1", "fd00:7::2")},
	} {
		for i := range w.hosts {
			set(i, x.own[i], x.own[1-i], x.own[1-i])
		}
		for _, to := range []netip.Addr{containerIP4[1], containerIP6[1]} {
			if err := ping(to); err != nil {
				t.Errorf("%s: %s is not reached", x.name, to)
			}
		}
		for _, size := range []int{driver.ProbeSize, 1500} {
			if err := w.probe(x.own[1], size); err != nil {
				t.Errorf("%s: a probe of %d bytes: %v", x.name, size, err)
			}
		}
		before := w.drops(t, 1)[driver.DropUnknownSource]
		set(1, x.own[1], x.own[0], x.other[0])
		for _, to := range []netip.Addr{containerIP4[1], containerIP6[1]} {
			if ping(to) == nil {
				t.Errorf("%s: %s answers somebody who is not where it is known to be", x.name, to)
			}
		}
		if w.drops(t, 1)[driver.DropUnknownSource] == before {
			t.Errorf("%s: no packet of an unknown source was counted", x.name)
		}
	}
}
