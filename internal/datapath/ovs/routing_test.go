package ovs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// newRouted is a switch with two boxes on two networks that a router joins, one of
// which has gateways.
func newRouted(t testing.TB) *live {
	t.Helper()
	l := newLive(t, 1)
	joined := *l.net
	joined.Joined = 3
	l.pic.Networks = l.pic.Networks.Set(joined.ID, &joined)
	other := &desired.Network{
		ID: 8, Key: model.NetworkKey{Tenant: "blue", Name: "vy"}, Encap: model.EncapVXLAN, Tag: 800, Joined: 3,
		Subnet: netip.MustParsePrefix("10.9.1.0/24"), Gateway: netip.MustParseAddr("10.9.1.254"),
		Subnet6: netip.MustParsePrefix("fd09:1::/64"), Gateway6: netip.MustParseAddr("fd09:1::fe"),
	}
	l.pic.Networks = l.pic.Networks.Set(other.ID, other)
	l.addBoxOn(t, other, 1, 1)
	for i, n := range []*desired.Network{&joined, other} {
		l.Run("ip", "-n", l.boxes[i].ns, "route", "add", "default", "via", n.Router().String(), "dev", "eth0", "onlink")
		l.Run("ip", "-n", l.boxes[i].ns, "-6", "route", "add", "default", "via", n.Router6().String(), "dev", "eth0")
	}
	l.apply(t)
	return l
}

// refuses checks which errors containers' own stacks get for packets that the router
// does not send on.
func (l *live) refuses(t *testing.T) {
	t.Helper()
	a := l.boxes[0]
	for _, x := range []struct {
		to   string
		want error
	}{
		{"10.9.1.77", syscall.EHOSTUNREACH},
		{"fd09:1::77", syscall.EHOSTUNREACH},
		{"203.0.113.9", syscall.ENETUNREACH},
		{"2001:db8::9", syscall.ENETUNREACH},
	} {
		if _, err := l.dial(t, a, netip.MustParseAddr(x.to), 80, 10*time.Second); !errors.Is(err, x.want) {
			t.Errorf("connect to %s: %v, want %v", x.to, err, x.want)
		}
	}
	for to, want := range map[netip.Addr]string{
		l.boxes[1].port.IPv4: "From " + desired.RouterAddr.String(), l.boxes[1].port.IPv6: "From " + desired.RouterMAC.LinkLocal().String(),
	} {
		out, _ := l.in(a, "ping", "-n", "-c", "1", "-t", "1", "-W", "10", to.String()).Output() // it fails
		if s := string(out); !strings.Contains(s, want) || !strings.Contains(s, "exceeded") {
			t.Errorf("ping of %s with one hop: %s", to, s)
		}
	}
}

// TestRoutedConnectionsSurviveRestarts restarts the driver under routed connections of both families:
// nothing is lost, and nothing rewritten. Without a driver the router is silent; it
// answers again after a restart of the driver, and of the switch.
func TestRoutedConnectionsSurviveRestarts(t *testing.T) {
	l := newRouted(t)
	a, b := l.boxes[0], l.boxes[1]
	c, answered := l.restarts(t, a, b)
	defer func() {
		if err := l.drv.Close(); err != nil {
			t.Error(err)
		}
	}()
	answered()
	l.refuses(t)
	l.KillSwitch()
	l.StartSwitch()
	if err := roundTrip(c, 10*time.Second); err != nil {
		t.Errorf("after a crash of the switch: %v", err)
	}
	eventually(t, "somebody answers after a crash of the switch", func() bool { return l.drv.responder.answerc.Load() != nil })
	l.refuses(t)
}

// TestRoutedSendersLearnThePathMTU: packets of a container on a VLAN network are as large as its link
// allows. For a VXLAN network it gets an error with the MTU that fits, from the address
// that it asked, and its kernel follows it. For another VLAN network it gets none.
func TestRoutedSendersLearnThePathMTU(t *testing.T) {
	l := newLive(t, 0)
	defer func() {
		if err := l.drv.Close(); err != nil {
			t.Error(err)
		}
	}()
	nets := make([]*desired.Network, 3)
	for i := range nets {
		encap := model.EncapVLAN
		if i == 1 {
			encap = model.EncapVXLAN
		}
		nets[i] = &desired.Network{
			ID: model.NetworkID(20 + i), Key: model.NetworkKey{Tenant: "blue", Name: model.NetworkName(fmt.Sprint("n", i))}, Encap: encap, Tag: uint32(40 + i), Joined: 3,
			Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, byte(i), 0}), 24), Subnet6: netip.MustParsePrefix(fmt.Sprintf("fd08:%d::/64", i)),
		}
		l.pic.Networks = l.pic.Networks.Set(nets[i].ID, nets[i])
		l.addBoxOn(t, nets[i], i, 1)
		l.Run("ip", "-n", l.boxes[i].ns, "route", "add", "default", "via", nets[i].Router().String(), "dev", "eth0", "onlink")
		l.Run("ip", "-n", l.boxes[i].ns, "-6", "route", "add", "default", "via", nets[i].Router6().String(), "dev", "eth0")
	}
	l.apply(t)
	a := l.boxes[0]
	eventually(t, "somebody answers", func() bool { return l.drv.responder.answerc.Load() != nil })
	for _, x := range []struct {
		to         netip.Addr
		fits, more string // bytes of a ping's payload
	}{{l.boxes[1].port.IPv4, "1422", "1423"}, {l.boxes[1].port.IPv6, "1402", "1403"}} {
		ping := func(size, count string) (string, error) {
			out, err := l.in(a, "ping", "-n", "-M", "do", "-c", count, "-i", "0.01", "-W", "10", "-s", size, x.to.String()).CombinedOutput()
			return string(out), err
		}
		if out, err := ping(x.fits, "5"); err != nil {
			t.Errorf("%s bytes to %s: %v\n%s", x.fits, x.to, err, out)
		}
		if out, err := ping(x.more, "1"); err == nil || !strings.Contains(out, "From "+x.to.String()) || !strings.Contains(strings.ReplaceAll(out, " ", ""), "mtu=1450") {
			t.Errorf("%s bytes to %s: %v, want to be told that 1450 fit\n%s", x.more, x.to, err, out)
		}
		if out, err := l.in(a, "ip", "route", "get", x.to.String()).CombinedOutput(); err != nil || !strings.Contains(string(out), "mtu 1450") {
			t.Errorf("the container's kernel has not learnt it: %v\n%s", err, out)
		}
	}
	for _, to := range []netip.Addr{l.boxes[2].port.IPv4, l.boxes[2].port.IPv6} {
		if out, err := l.in(a, "ping", "-n", "-M", "do", "-c", "1", "-W", "10", "-s", "1450", to.String()).CombinedOutput(); err != nil {
			t.Errorf("1450 bytes to VLAN's %s: %v\n%s", to, err, out)
		}
	}
	l.Appctl("revalidator/purge") // flows have all packets counted then
	stats, err := l.drv.Stats(t.Context())
	if err != nil || stats.Drops[driver.DropTooBig] != 2 {
		t.Errorf("drops %v, %v: want 2 that are too big", stats.Drops, err)
	}
}

// eventually waits for something without an event.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(10 * time.Second); !is(); {
		select {
		case <-deadline:
			t.Fatalf("10 s later it is not so that %s", what)
		case <-tick.C:
		}
	}
}
