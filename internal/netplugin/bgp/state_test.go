package bgp

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestFilterRejectsProtectedAndSpecialPrefixes(t *testing.T) {
	f := newFilter([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.3.3.3/32"), netip.MustParsePrefix("fd00:1::/64"), {}},
		[]netip.Prefix{netip.MustParsePrefix("50.1.1.0/24"), netip.MustParsePrefix("fd50::/64")}, false)
	for p, want := range map[string]string{
		"0.0.0.0/0": ReasonDefault, "::/0": ReasonDefault,
		"10.1.0.0/16": ReasonProtected, "10.1.255.255/32": ReasonProtected, "10.0.0.0/15": ReasonProtected, "10.3.3.0/24": ReasonProtected,
		"10.3.3.3/32": ReasonProtected, "fd00:1::5/128": ReasonProtected, "fd00::/16": ReasonProtected, "8.0.0.0/5": ReasonProtected,
		"10.2.0.0/16": "", "10.3.3.2/32": "", "10.3.3.4/30": "", "10.0.0.0/16": "", "fd00:1:0:1::/64": "", "fd00:0:ffff::/48": "", "11.0.0.0/8": "",
		"127.0.0.0/8": ReasonSpecial, "224.0.0.0/4": ReasonSpecial, "169.254.1.0/24": ReasonSpecial, "fe80::/64": ReasonSpecial, "ff00::/8": ReasonSpecial, "0.0.0.0/8": ReasonSpecial,
		"126.0.0.0/7": ReasonSpecial, "169.0.0.0/8": ReasonSpecial, "192.0.0.0/2": ReasonSpecial, "240.1.0.0/16": ReasonSpecial, "255.255.255.255/32": ReasonSpecial,
		"0.1.0.0/16": ReasonSpecial, "::ffff:10.0.0.0/104": ReasonSpecial, "0.0.0.0/1": ReasonSpecial, "fc00::/6": ReasonSpecial, "::/16": ReasonSpecial, "::1/128": ReasonSpecial,
		"50.1.1.201/32": ReasonProtected, "50.1.1.128/25": ReasonProtected, "50.1.1.0/24": ReasonProtected, "fd50::201/128": ReasonProtected,
		"50.1.0.0/16": "", "50.1.2.0/24": "", "fd50::/32": "", "2000::/3": "",
	} {
		if got := f.whyRefused(netip.MustParsePrefix(p)); got != want {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
}

func TestUnusableNextHopsAreRejected(t *testing.T) {
	own := map[netip.Addr]bool{netip.MustParseAddr("10.9.0.1"): true}
	for x, want := range map[string]bool{
		"10.2.0.0/16 10.9.0.2": true, "10.2.0.0/16 10.9.0.1": false, "10.9.0.2/32 10.9.0.2": false, "10.9.0.3/32 10.9.0.2": true,
		"10.2.0.0/16 fd00::1": false, "fd02::/32 10.9.0.2": false, "fd02::/32 fd00::1": true, "fd02::/32 fe80::1": false,
		"10.2.0.0/16 0.0.0.0": false, "10.2.0.0/16 127.0.0.9": false, "10.2.0.0/16 224.0.0.5": false, "10.2.0.0/16 169.254.0.1": false,
	} {
		p, hop, _ := strings.Cut(x, " ")
		if got := usable(netip.MustParsePrefix(p), netip.MustParseAddr(hop), own); got != want {
			t.Errorf("%s: %t", x, got)
		}
	}
}

// The shape of /inspect/bgp is 1.x' where 1.x had it, and the metrics say the same.
func TestStateHasTheShapeOf1x(t *testing.T) {
	h := start(t, 1, nil, Options{})
	h.announce(a("10.7.0.1/32", "10.9.0.1"))
	r := connect(t, "127.0.0.2", routerAS, h)
	r.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16", "0.0.0.0/0")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
	h.peer("127.0.0.2", "all told", func(p PeerState) bool { return p.Announced == 1 && p.Rejected == 1 })
	st, err := h.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	peer := got["peers"].([]any)[0].(map[string]any)
	if peer["since"] == "" {
		t.Error("no time")
	}
	delete(peer, "since")
	want := map[string]any{
		"as": float64(hostAS), "routerId": "127.0.0.1", "complete": false, "dsts": []any{"10.2.0.0/16"}, "announced": []any{"10.7.0.1/32"},
		"peers": []any{map[string]any{
			"address": "127.0.0.2", "as": float64(routerAS), "state": "established", "flaps": 0.0, "received": 2.0, "accepted": 1.0,
			"rejected": 1.0, "rejectedWhy": map[string]any{"default": 1.0}, "announced": 1.0,
		}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err := testutil.CollectAndCompare(Collector{h.Speaker}, strings.NewReader(`
# HELP contiv_netplugin_bgp_prefixes Prefixes of a BGP neighbor, by kind: received, accepted, announced.
# TYPE contiv_netplugin_bgp_prefixes gauge
contiv_netplugin_bgp_prefixes{kind="accepted",neighbor="127.0.0.2"} 1
contiv_netplugin_bgp_prefixes{kind="announced",neighbor="127.0.0.2"} 1
contiv_netplugin_bgp_prefixes{kind="received",neighbor="127.0.0.2"} 2
# HELP contiv_netplugin_bgp_prefixes_rejected Prefixes received from a BGP neighbor and not accepted, by reason.
# TYPE contiv_netplugin_bgp_prefixes_rejected gauge
contiv_netplugin_bgp_prefixes_rejected{neighbor="127.0.0.2",reason="default"} 1
# HELP contiv_netplugin_bgp_session_ends_total Sessions with a BGP neighbor that ended.
# TYPE contiv_netplugin_bgp_session_ends_total counter
contiv_netplugin_bgp_session_ends_total{neighbor="127.0.0.2"} 0
# HELP contiv_netplugin_bgp_session_up 1 while there is a session with a BGP neighbor, else 0.
# TYPE contiv_netplugin_bgp_session_up gauge
contiv_netplugin_bgp_session_up{neighbor="127.0.0.2"} 1
`)); err != nil {
		t.Error(err)
	}
}

// Of equally good ways a route has each once, and so many at most.
func TestEqualPathsAreBounded(t *testing.T) {
	var all []learnedPath
	for i := range 3 * maxHops {
		all = append(all, learnedPath{hop: netip.AddrFrom4([4]byte{10, 9, 0, byte(i / 2)}), neighbor: netip.AddrFrom4([4]byte{10, 8, 0, byte(i)})})
	}
	if got := best(all); len(got) != maxHops || got[1].Address == got[0].Address {
		t.Errorf("%d ways: %v", len(got), got)
	}
	all[2].rank.minusPref, all[4].rank.minusPref, all[4].why = -7, -9, ReasonNextHop
	if got := best(all); len(got) != 1 || got[0].Neighbor != all[2].neighbor {
		t.Errorf("the best: %v", got)
	}
}

// Each attribute decides by itself which of two paths is better, before all later ones.
func TestEachAttributeDecidesInOrder(t *testing.T) {
	path := func(as uint32, attrs ...bgp.PathAttributeInterface) rank {
		_, r := attributes(&apiutil.Path{PeerASN: as, Attrs: attrs}, hostAS)
		return r
	}
	pref, med, origin := bgp.NewPathAttributeLocalPref, bgp.NewPathAttributeMultiExitDisc, bgp.NewPathAttributeOrigin
	way := func(as ...uint32) bgp.PathAttributeInterface {
		return bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, as)})
	}
	better := []rank{ // each than the next one
		path(routerAS, pref(101), way(1, 2, 3), origin(2), med(9)),
		path(routerAS, pref(100), way(1), origin(2), med(9)),
		path(routerAS, pref(100), way(1, 2), origin(0), med(9)),
		path(routerAS, way(1, 2), origin(1), med(8)), // 100 is what is not said
		path(routerAS, way(1, 2), origin(1), med(9)),
		path(routerAS, pref(99), origin(0)),
		path(hostAS, pref(300), origin(0)), // of the host's own AS
	}
	for i, a := range better {
		for j, b := range better {
			if got := a.before(b); got != (i < j) {
				t.Errorf("%+v before %+v: %t", a, b, got)
			}
		}
	}
	mapped := netip.MustParseAddr("::ffff:10.9.0.2")
	reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv4_UC, nlri(t, []string{"10.2.0.0/16"}), mapped)
	if err != nil {
		t.Fatal(err)
	}
	if hop, _ := attributes(&apiutil.Path{Attrs: []bgp.PathAttributeInterface{reach}}, hostAS); hop != mapped.Unmap() {
		t.Errorf("next hop %s", hop)
	}
}

// TestChangedNeighborIsAnother: whatever is other of a neighbor, it is another one; what is said
// in the same way is not.
func TestChangedNeighborIsAnother(t *testing.T) {
	one := func() Neighbor {
		return Neighbor{
			Address: netip.MustParseAddr("10.9.0.2"), AS: 7, Port: 179, Local: netip.MustParseAddr("10.9.0.1"), Password: "x", IPv4: true,
			MaxPrefixes: 10, HoldTime: 9 * time.Second, Multihop: 2, BFD: &BFD{Interval: time.Second, Multiple: 3},
		}
	}
	if !one().equal(one()) {
		t.Error("the same differ")
	}
	for what, change := range map[string]func(*Neighbor){
		"AS": func(n *Neighbor) { n.AS = 8 }, "port": func(n *Neighbor) { n.Port = 1179 }, "local": func(n *Neighbor) { n.Local = netip.Addr{} },
		"password": func(n *Neighbor) { n.Password = "" }, "family": func(n *Neighbor) { n.IPv6 = true }, "limit": func(n *Neighbor) { n.MaxPrefixes = 11 },
		"hold time": func(n *Neighbor) { n.HoldTime = 3 * time.Second }, "hops": func(n *Neighbor) { n.Multihop = 0 }, "no BFD": func(n *Neighbor) { n.BFD = nil },
		"BFD's interval": func(n *Neighbor) { n.BFD.Interval = 2 * time.Second }, "BFD's multiple": func(n *Neighbor) { n.BFD.Multiple = 4 },
	} {
		other := one()
		change(&other)
		if one().equal(other) || other.equal(one()) {
			t.Errorf("%s makes no difference", what)
		}
	}
}

// TestNeighborBecomesTheLibrarysConfiguration: the configuration of a neighbor for the library.
func TestNeighborBecomesTheLibrarysConfiguration(t *testing.T) {
	n, err := Neighbor{Address: netip.MustParseAddr("10.9.0.2"), AS: 7, Multihop: 3, BFD: &BFD{Interval: 300 * time.Millisecond, Multiple: 5}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	p := n.peer(120*time.Second, true, true)
	if b := p.Bfd; !b.Enabled || b.DesiredMinimumTxInterval != 300_000 || b.RequiredMinimumReceive != 300_000 || b.DetectionMultiplier != 5 {
		t.Errorf("BFD %+v", b)
	}
	if m := p.EbgpMultihop; !m.Enabled || m.MultihopTtl != 3 {
		t.Errorf("hops %+v", m)
	}
	if g := p.GracefulRestart; !g.Enabled || g.RestartTime != 120 || !g.LocalRestarting || !p.Conf.AdminDown {
		t.Errorf("restart %+v, held %v", g, p.Conf.AdminDown)
	}
	if c := p.Timers.Config; c.HoldTime != 9 || c.KeepaliveInterval != 3 || len(p.AfiSafis) != 1 {
		t.Errorf("timers %+v, %d families", c, len(p.AfiSafis))
	}
	n.BFD, n.Multihop = nil, 0
	if p := n.peer(time.Second, false, false); p.Bfd != nil || p.EbgpMultihop != nil || p.Conf.AdminDown || p.GracefulRestart.LocalRestarting {
		t.Errorf("without: %+v", p)
	}
}
