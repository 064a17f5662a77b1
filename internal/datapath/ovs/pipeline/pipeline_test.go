package pipeline

import (
	"cmp"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// printed are the flows that text has printed.
var printed []of.Flow

// goldenFlows are the flows of the goldens, made by the tests of these.
func goldenFlows(t *testing.T) []of.Flow {
	t.Helper()
	printed = nil
	for _, test := range []func(*testing.T){TestPortFlowsOfEachModeAreAsPinned, TestFlowsWithoutAdvertisementsAreAsPinned, TestRouterFlowsAreAsPinned, TestHostFlowsAreAsPinned, TestPolicyFlowsAreAsPinned, TestAuditFlowsAreAsPinned, TestRoutedNetworkFlowsAreAsPinned, TestServiceFlowsAreAsPinned, TestFrontendFlowsAreAsPinned} {
		test(t)
	}
	if len(printed) == 0 {
		t.Fatal("the goldens have no flows")
	}
	return printed
}

// text prints flows by stage, in the order in which the switch tries them. Each survives
// the wire, and no two have one key.
func text(t *testing.T, flows []of.Flow) string {
	t.Helper()
	slices.SortFunc(flows, func(a, b of.Flow) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority), strings.Compare(a.String(), b.String()))
	})
	var b strings.Builder
	stage := -1
	keys := map[string]of.Flow{}
	for _, f := range flows {
		if g, err := of.FromParts(f.Key(), f.Body()); err != nil || g.String() != f.String() {
			t.Errorf("%s became %s: %v", f, g, err)
		}
		if old, ok := keys[f.Key()]; ok {
			t.Errorf("two flows of one key:\n%s\n%s", old, f)
		}
		keys[f.Key()] = f
		if int(f.Table) != stage {
			stage = int(f.Table)
			fmt.Fprintf(&b, "# %s\n", Stage(f.Table))
		}
		b.WriteString(f.String() + "\n")
	}
	printed = append(printed, flows...)
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to make it)", err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
}

var (
	key  = model.NetworkKey{Tenant: "blue", Name: "net"}
	port = desired.Port{
		IfName: "cv1", Network: 7, MAC: model.MAC{2, 2, 10, 1, 1, 2}, Identity: 256, Policies: 5,
		IPv4: netip.MustParseAddr("10.1.1.2"), IPv6: netip.MustParseAddr("fd00::2"),
	}
	remote = desired.Remote{
		Network: 7, MAC: model.MAC{2, 2, 10, 1, 1, 3}, Identity: 257, VTEP: netip.MustParseAddr("192.168.0.2"),
		IPv4: netip.MustParseAddr("10.1.1.3"), IPv6: netip.MustParseAddr("fd00::3"),
	}
)

// TestPortFlowsOfEachModeAreAsPinned pins the flows of one port and one remote endpoint in each mode.
func TestPortFlowsOfEachModeAreAsPinned(t *testing.T) {
	golden(t, "base-proxy", text(t, Base(Config{Tunnel: 1, Uplink: 2, ArpMode: model.ArpProxy, Answers: true})))
	golden(t, "base-flood", text(t, Base(Config{Tunnel: 1, Uplink: 2, ArpMode: model.ArpFlood})))
	for _, encap := range []model.Encap{model.EncapVXLAN, model.EncapVLAN} {
		for _, mode := range []model.ArpMode{model.ArpProxy, model.ArpFlood} {
			for _, family := range []string{"v4", "v6", "dual"} {
				c := Config{Tunnel: 1, Uplink: 2, ArpMode: mode}
				n := &desired.Network{ID: 7, Key: key, Encap: encap, Tag: 100, VTEPs: []netip.Addr{remote.VTEP}}
				p, r := port, remote
				switch family {
				case "v4":
					p.IPv6, r.IPv6 = netip.Addr{}, netip.Addr{}
				case "v6":
					p.IPv4, r.IPv4 = netip.Addr{}, netip.Addr{}
				}
				local := LocalPort{&p, 10}
				flows := slices.Concat(Network(c, n, []LocalPort{local}), Port(c, n, local), Remote(c, n, &r))
				golden(t, fmt.Sprintf("%s-%s-%s", encap, mode, family), text(t, flows))
			}
		}
	}
}

// TestFlowsWithoutAdvertisementsAreAsPinned pins the flows for a datapath that cannot make advertisements.
func TestFlowsWithoutAdvertisementsAreAsPinned(t *testing.T) {
	c := Config{Tunnel: 1, Uplink: 2, ArpMode: model.ArpProxy, Relay: true}
	for _, encap := range []model.Encap{model.EncapVXLAN, model.EncapVLAN} {
		n := &desired.Network{ID: 7, Key: key, Encap: encap, Tag: 100}
		p, r := port, remote
		p.IPv4, r.IPv4 = netip.Addr{}, netip.Addr{}
		got := text(t, slices.Concat(Port(c, n, LocalPort{&p, 10}), Remote(c, n, &r)))
		golden(t, fmt.Sprintf("%s-relay-v6", encap), got)
		for _, field := range []string{"nd_options_type", "nd_reserved"} {
			if strings.Contains(got, field) {
				t.Errorf("%s: flows with %s, which the kernel's datapath refuses", encap, field)
			}
		}
	}
}

// TestRouterFlowsAreAsPinned pins what routing adds, on networks of either encapsulation, with and
// without egress, and on a datapath that cannot make advertisements.
func TestRouterFlowsAreAsPinned(t *testing.T) {
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	for name, c := range map[string]Config{
		"": {}, "-host": {Host: 3, Private: *way}, "-relay": {Relay: true}, "-silent": {Relay: true},
	} {
		c.Tunnel, c.Uplink, c.ArpMode, c.Answers, c.MTU = 1, 2, model.ArpProxy, name != "-silent", 1450
		for _, encap := range []model.Encap{model.EncapVXLAN, model.EncapVLAN} {
			n := &desired.Network{
				ID: 7, Key: key, Encap: encap, Tag: 100, Joined: 4,
				Subnet: netip.MustParsePrefix("10.1.1.0/24"), Gateway: netip.MustParseAddr("10.1.1.1"), Subnet6: netip.MustParsePrefix("fd00::/64"),
			}
			p := port
			p.Private = netip.MustParseAddr("172.19.0.1")
			p.Private6 = way.Private6(p.Private)
			local := LocalPort{&p, 10}
			flows := func(n *desired.Network) []of.Flow {
				return slices.Concat(Base(c), Network(c, n, []LocalPort{local}), Port(c, n, local), Remote(c, n, &remote))
			}
			alone := *n
			alone.Joined = 0
			have := map[string]bool{}
			for _, f := range flows(&alone) {
				g := f.String()
				have[strings.ReplaceAll(g, "metadata=0x7,", "metadata=0x10004,")] = f.Table != uint8(Classify)
			}
			golden(t, fmt.Sprintf("router-%s%s", encap, name), text(t, slices.DeleteFunc(flows(n), func(f of.Flow) bool { return have[f.String()] })))
		}
	}
	c := Config{Answers: true, MTU: 1450}
	n := &desired.Network{ID: 7, Encap: model.EncapVXLAN, Joined: 4, Subnet: netip.MustParsePrefix("10.1.1.0/24")}
	base := slices.Concat(Base(c), Network(c, n, nil))
	for _, want := range []struct {
		stage Stage
		r     Refusal
	}{
		{TTLCheck, Refusal{[2]uint8{11, 0}, [2]uint8{3, 0}, false}},
		{NextHop, Refusal{[2]uint8{3, 1}, [2]uint8{1, 3}, false}},
		{NextHop, Refusal{[2]uint8{3, 4}, [2]uint8{2, 0}, true}},
		{Router, Refusal{[2]uint8{3, 0}, [2]uint8{1, 0}, false}},
	} {
		answered := 0
		for _, f := range base {
			r, ok := RefusalOf(f.Table, f.Cookie)
			if ok != (len(f.Actions) > 0 && f.Actions[0] == of.Action(of.Meter{ID: MeterRefusals})) {
				t.Errorf("%s: answered: %v", f, ok)
			}
			if ok && Stage(f.Table) == want.stage && r == want.r {
				answered++
			}
		}
		if answered == 0 {
			t.Errorf("nothing of stage %s is answered by %v", want.stage, want.r)
		}
	}
}

// TestHostFlowsAreAsPinned pins what egress through the host adds: on a network whose
// gateway the virtual router is, and on one with a physical router.
func TestHostFlowsAreAsPinned(t *testing.T) {
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	c := Config{Tunnel: 1, Uplink: 2, ArpMode: model.ArpProxy, Host: 3, Private: *way}
	without := Config{Tunnel: 1, Uplink: 2, ArpMode: model.ArpProxy}
	p := port
	p.Private = netip.MustParseAddr("172.19.0.1")
	p.Private6 = way.Private6(p.Private)
	local := LocalPort{&p, 10}
	for name, n := range map[string]*desired.Network{
		"host-gateway": {ID: 7, Key: key, Encap: model.EncapVXLAN, Tag: 100, Gateway: netip.MustParseAddr("10.1.1.1"), Gateway6: netip.MustParseAddr("fd00::1")},
		"host-link":    {ID: 7, Key: key, Encap: model.EncapVLAN, Tag: 100},
		"host-divert":  {ID: 7, Key: key, Encap: model.EncapVLAN, Tag: 100, Gateway: netip.MustParseAddr("10.1.1.1"), Gateway6: netip.MustParseAddr("fd00::1")},
	} {
		n.Subnet, n.Subnet6 = netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00::/64")
		have := map[string]bool{}
		for _, f := range slices.Concat(Base(without), Network(without, n, nil), Port(without, n, local)) {
			have[f.String()] = true
		}
		flows := slices.Concat(Base(c), Network(c, n, []LocalPort{local}), Port(c, n, local))
		golden(t, name, text(t, slices.DeleteFunc(flows, func(f of.Flow) bool { return have[f.String()] })))
	}
}

// TestPolicyFlowsAreAsPinned pins the flows of a set with every kind of peer and port.
func TestPolicyFlowsAreAsPinned(t *testing.T) {
	pm := func(p model.Protocol, lo, hi uint16) []model.PortMatch {
		return []model.PortMatch{{Protocol: p, Lo: lo, Hi: hi}}
	}
	prefix := netip.MustParsePrefix
	s := &desired.PolicySet{ID: 5, Name: "p1", In: []desired.Tier{
		{Tier: model.TierContiv, Default: model.Pass, Rules: desired.RulesOf(
			desired.Rule{ID: "a", Priority: 100, Action: model.Deny, AnyPeer: true},
			desired.Rule{ID: "b", Priority: 10, Action: model.Deny, Log: true, Identities: desired.IdentitiesOf(256, 257), Ports: pm(model.ProtoTCP, 80, 80)},
			desired.Rule{ID: "c", Priority: 10, Action: model.Allow, Identities: desired.IdentitiesOf(256), Ports: pm(model.ProtoTCP, 80, 80)},
			desired.Rule{ID: "d", Priority: 9, Action: model.Pass, Log: true, AnyPeer: true, Ports: pm(model.ProtoUDP, 1000, 1030)},
			desired.Rule{ID: "e", Priority: 8, Action: model.Allow, Log: true, AnyPeer: true, Ports: pm(model.ProtoICMP, 0, 0)},
			desired.Rule{ID: "f", Priority: 7, Action: model.Allow, Ports: pm(model.ProtoTCP, 0, 65535), CIDRs: []desired.CIDR{
				{Prefix: prefix("10.0.0.0/8"), Except: []netip.Prefix{prefix("10.128.0.0/10")}},
				{Prefix: prefix("fd00::/64"), Network: 7},
			}},
			desired.Rule{ID: "g", Priority: 6, Action: model.Allow, CIDRs: []desired.CIDR{{Prefix: prefix("0.0.0.0/0")}}},
			desired.Rule{ID: "h", Priority: 5, Action: model.Allow, AnyPeer: true, Ports: pm(model.ProtoSCTP, 9, 9)},
			desired.Rule{ID: "i", Priority: 4, Action: model.Allow, AnyPeer: true, Ports: pm(47, 0, 65535)},
			desired.Rule{ID: "none", Priority: 3, Action: model.Allow},
		)},
		{Tier: model.TierKubernetes, Default: model.Deny, Rules: desired.RulesOf(
			desired.Rule{ID: "k", Action: model.Allow, Identities: desired.IdentitiesOf(300)},
		)},
	}}
	golden(t, "policy", text(t, policySet(t, s)))
}

// TestAuditFlowsAreAsPinned pins what evaluates an audited set.
func TestAuditFlowsAreAsPinned(t *testing.T) {
	s := &desired.PolicySet{ID: 5, Audits: []desired.PolicySetID{6, 7}, In: []desired.Tier{{Default: model.Pass}}}
	a := &desired.PolicySet{ID: 6, In: []desired.Tier{
		{Tier: model.TierContiv, Default: model.Pass},
		{Tier: model.TierKubernetes, Default: model.Deny},
	}}
	l := &list{cookie: cookie(KindAudit, 0)}
	l.auditEntries()
	l.sampleFlows(3, firstMeter+3) // of one share
	flows := slices.Concat(Audits(s), l.flows)
	frame, err := SetBaseFlows(a, true)
	if err != nil {
		t.Fatal(err)
	}
	flows = append(flows, frame...)
	for i, action := range []model.Action{model.Allow, model.Deny, model.Pass} {
		r := &desired.Rule{ID: string(action), Action: action, Log: true, Identities: desired.IdentitiesOf(300)}
		for tier := range 2 {
			flows = append(flows, Rule(Config{}, RulePosition{Set: 6, Audit: true, Tier: tier, Last: tier == 1, Out: i == 0}, r)...)
		}
	}
	golden(t, "audit", text(t, flows))
}

// TestPolicyThatFlowsCannotExpressDeniesAll checks that a policy that flows cannot express is reported, and
// that flows deny everything instead.
func TestPolicyThatFlowsCannotExpressDeniesAll(t *testing.T) {
	if CheckRule(&desired.Rule{ID: "r", Priority: MaxRulePriority + 1}) == nil || CheckRule(&desired.Rule{Priority: -1}) == nil {
		t.Error("a priority that no flow can have is taken")
	}
	if err := CheckRule(&desired.Rule{Priority: desired.MaxPriority}); err != nil {
		t.Errorf("the highest priority of all: %v", err)
	}
	if _, err := SetBaseFlows(&desired.PolicySet{ID: 5, In: make([]desired.Tier, TiersPerDirection+1)}, false); err == nil {
		t.Error("too many tiers are taken")
	}
	flows := ClosedSet(5)
	if len(flows) != 2 || len(flows[0].Actions)+len(flows[1].Actions) != 0 {
		t.Errorf("flows\n%s", text(t, flows))
	}
}

// TestHigherPriorityAndDenyWin checks that a higher priority wins and that deny wins ties.
func TestHigherPriorityAndDenyWin(t *testing.T) {
	at := func(p int, a model.Action) uint16 {
		return rulePriority(Config{}, &desired.Rule{Priority: p, Action: a})
	}
	order := []uint16{
		priorityDefault, at(0, model.Allow), at(0, model.Pass), at(0, model.Deny), at(1, model.Allow),
		at(MaxRulePriority, model.Allow), at(MaxRulePriority, model.Deny),
	}
	if !slices.IsSorted(order) || len(slices.Compact(slices.Clone(order))) != len(order) {
		t.Errorf("priorities %v are not strictly ascending", order)
	}
}

// TestPortMasksCoverTheirRanges checks ranges against every port.
func TestPortMasksCoverTheirRanges(t *testing.T) {
	for _, r := range [][2]uint16{{0, 65535}, {80, 80}, {1000, 1030}, {1, 65534}, {65535, 65535}, {0, 0}, {1024, 65535}} {
		masks := portMasks(r[0], r[1])
		for p := 0; p <= 65535; p++ {
			n := 0
			for _, m := range masks {
				if uint16(p)&m.mask == m.value {
					n++
				}
			}
			want := 0
			if uint16(p) >= r[0] && uint16(p) <= r[1] {
				want = 1
			}
			if n != want {
				t.Fatalf("range %v: port %d is in %d of %v", r, p, n, masks)
			}
		}
	}
}

// FuzzWithout checks that exceptions are cut out of a prefix, and nothing else.
func FuzzWithout(f *testing.F) {
	f.Add(uint32(0x0a000000), 8, uint32(0x0a010000), 16, uint32(0x0a010203))
	f.Add(uint32(0), 0, uint32(0xffffffff), 32, uint32(0xffffffff))
	f.Add(uint32(0x0a000000), 24, uint32(0x0a000000), 8, uint32(0x0a000001))
	f.Fuzz(func(t *testing.T, p uint32, pb int, e uint32, eb int, a uint32) {
		addr := func(v uint32) netip.Addr {
			return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		}
		whole, err1 := addr(p).Prefix(pb)
		except, err2 := addr(e).Prefix(eb)
		if err1 != nil || err2 != nil {
			return
		}
		n := 0
		for _, q := range without(whole, []netip.Prefix{except}) {
			if q.Contains(addr(a)) {
				n++
			}
		}
		want := 0
		if whole.Contains(addr(a)) && !except.Contains(addr(a)) {
			want = 1
		}
		if n != want {
			t.Errorf("%s without %s holds %s %d times, want %d", whole, except, addr(a), n, want)
		}
	})
}

// TestNothingFollowsTracking: what follows tracking in a flow is done to every
// packet that tracking hands on, and in user space some of these may be fragments of
// other datagrams, whose time has run out: so tracking is the last action of its
// flow, and the tables look again at what it hands on.
func TestNothingFollowsTracking(t *testing.T) {
	seen := 0
	for _, f := range goldenFlows(t) {
		for i, a := range f.Actions {
			ct, ok := a.(of.CT)
			if !ok {
				continue
			}
			seen++
			if !ct.Recirc || i != len(f.Actions)-1 {
				t.Error(f)
			}
		}
	}
	if seen == 0 {
		t.Error("no flow tracks connections")
	}
}
