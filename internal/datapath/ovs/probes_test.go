package ovs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestProbesOverIPv6AreAnswered: a request that a known host sends over IPv6 goes back to it, and one
// of another host does not.
func TestProbesOverIPv6AreAnswered(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel's datapath says nothing of outer headers here")
	}
	r := newRig(t)
	own, peer, nobody := netip.MustParseAddr("fd00:7::1"), netip.MustParseAddr("fd00:7::2"), netip.MustParseAddr("fd00:7::3")
	r.Run("ip", "netns", "exec", r.NS, "sysctl", "-q", "-w", "net.ipv6.conf."+underlayBridge+".disable_ipv6=0")
	r.Run("ip", "-n", r.NS, "addr", "add", own.String()+"/64", "dev", underlayBridge, "nodad")
	for _, a := range []netip.Addr{peer, nobody} {
		r.Appctl("tnl/neigh/set", underlayBridge, a.String(), mac2.String())
	}
	d := r.open(t)
	t.Cleanup(func() { _ = d.Close() })
	pic := desired.Host{Name: "h1", VTEP: own, ArpMode: model.ArpProxy, Revision: 1}
	pic.Tunnels = pic.Tunnels.Set(peer, "h2")
	pic.Bandwidth = pic.Bandwidth.Set("cvmarks", &desired.Rate{DSCP: 10}) // has a port that takes VNI 0
	if _, err := d.Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
	trace := func(port string, from netip.Addr) string {
		return r.Appctl("ofproto/trace", "contivBr", "in_port="+port+",tun_id=0,tun_ipv6_src="+from.String()+",tun_ipv6_dst="+own.String()+
			",dl_src=02:c0:f2:00:00:01,dl_dst=02:c0:f2:00:00:01,dl_type=0x88b6")
	}
	for _, port := range []string{tunnelName, markedName} {
		if text := trace(port, peer); !strings.Contains(text, "ipv6(src=fd00:7::1,dst=fd00:7::2") || !strings.Contains(text, "vni=0x0") || !strings.Contains(text, "02:c0:f2:00:00:02") {
			t.Errorf("a known host's request by %s:\n%s", port, text)
		}
		if text := trace(port, nobody); !strings.Contains(text, "Datapath actions: drop") {
			t.Errorf("another host's request by %s:\n%s", port, text)
		}
	}
}
