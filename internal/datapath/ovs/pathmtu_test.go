package ovs

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestShrunkTunnelIsReportedToSenders lets the tunnel's MTU shrink under a container: what does
// not fit any more is answered with the size that does, on the network itself, by a router,
// and by a service, and the container's kernel learns it. When the tunnel is big again all
// passes.
func TestShrunkTunnelIsReportedToSenders(t *testing.T) {
	l := newLive(t, 1)
	defer l.drv.Close()
	vtep := netip.MustParseAddr("192.168.77.2")
	other := &desired.Network{
		ID: 8, Key: model.NetworkKey{Tenant: "blue", Name: "vx2"}, Encap: model.EncapVXLAN, Tag: 701, Joined: 3,
		Subnet: netip.MustParsePrefix("10.10.0.0/24"), Subnet6: netip.MustParsePrefix("fd10::/64"), VTEPs: []netip.Addr{vtep},
	}
	own := *l.net
	own.Joined, own.VTEPs = 3, other.VTEPs
	l.net = &own
	l.pic.Networks = l.pic.Networks.Set(own.ID, l.net).Set(other.ID, other)
	for _, n := range []*desired.Network{l.net, other} {
		a4, a6 := n.Subnet.Addr().As4(), n.Subnet6.Addr().As16()
		a4[3], a6[15] = 9, 9
		r := &desired.Remote{Network: n.ID, MAC: model.MAC{2, 2, 10, 9, byte(n.ID), 9}, IPv4: netip.AddrFrom4(a4), IPv6: netip.AddrFrom16(a6), Identity: 500, VTEP: vtep}
		l.pic.Remotes = l.pic.Remotes.Set(desired.RemoteKey{Network: n.ID, MAC: r.MAC}, r)
	}
	s := l.served(200)
	remote := model.EndpointKey{Network: l.net.Key, ID: "far"}
	s.Backends = s.Backends.Set(remote, &desired.Backend{Network: l.net.ID, IPv4: netip.MustParseAddr("10.9.0.9"), IPv6: netip.MustParseAddr("fd09::9"), Identity: 500, VTEP: vtep})
	l.pic.Services = l.pic.Services.Set(s.Key, s)
	a := l.boxes[0]
	l.Run("ip", "-n", a.ns, "route", "add", "default", "via", l.net.Router().String(), "dev", "eth0", "onlink")
	l.Run("ip", "-n", a.ns, "-6", "route", "add", "default", "via", l.net.Router6().String(), "dev", "eth0")
	eventually(t, "somebody answers", func() bool { return l.drv.responder.answerc.Load() != nil })
	shrink := func(mtu uint16) {
		t.Helper()
		now := func() uint16 { return mtu }
		l.drv.underlay.measure.Store(&now)
		l.drv.underlay.noteMTU()
		l.apply(t)
	}
	learned := func(to netip.Addr) string {
		t.Helper()
		out, err := l.in(a, "ip", "route", "get", to.String()).CombinedOutput()
		if err != nil {
			t.Fatal(err, string(out))
		}
		return string(out)
	}
	tooBig := func() uint64 {
		t.Helper()
		stats, err := l.drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Drops[driver.DropTooBig]
	}
	for _, mtu := range []uint16{1450, 1350} {
		shrink(mtu)
		for _, to := range []string{"10.9.0.9", "fd09::9", "10.10.0.9", "fd10::9"} {
			size := 1450 - 28
			if strings.Contains(to, ":") {
				size -= 20
			}
			out, err := l.in(a, "ping", "-n", "-M", "do", "-c", "1", "-W", "1", "-s", strconv.Itoa(size), to).CombinedOutput()
			if err == nil {
				t.Fatalf("somebody answers at %s", to)
			}
			text := strings.ReplaceAll(string(out), " ", "")
			if told := strings.Contains(text, "From"+to) && strings.Contains(text, "mtu=1350"); told != (mtu == 1350) {
				t.Errorf("tunnel MTU %d: a ping of 1450 bytes to %s is told 1350: %v\n%s", mtu, to, told, out)
			}
			if knows := strings.Contains(learned(netip.MustParseAddr(to)), "mtu 1350"); knows != (mtu == 1350) {
				t.Errorf("tunnel MTU %d: the container's kernel has learnt it: %v", mtu, knows)
			}
		}
	}
	// The error for a datagram to a service comes from the service's address.
	c := l.listenUDP(t, a, 0)
	if _, err := c.WriteToUDPAddrPort(make([]byte, 1400), netip.AddrPortFrom(s.IPv4, 8053)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the container learns the MTU of the way to the service", func() bool { return strings.Contains(learned(s.IPv4), "mtu 1350") })
	if tooBig() != 5 {
		t.Errorf("%d packets counted as too big, want 5", tooBig())
	}
	shrink(1450)
	if _, err := l.in(a, "ip", "route", "flush", "cache").CombinedOutput(); err != nil {
		t.Fatal(err)
	}
	_, _ = l.in(a, "ping", "-n", "-M", "do", "-c", "1", "-W", "1", "-s", "1422", "10.9.0.9").CombinedOutput()
	if tooBig() != 5 {
		t.Error("what fits again is refused")
	}
}
