package ebpf

import (
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// boundGroups is how many groups, and so identities, the networks of TestPolicyMeterIsAnUpperBound have.
const boundGroups = 6

// contivSet is the set of a list of Contiv rules as package compile makes it, on
// VLAN networks, whose addresses are peers too.
func contivSet(rules []model.PolicyRule) *desired.PolicySet {
	in, out := desired.Tier{Tier: model.TierContiv, Default: model.Pass}, desired.Tier{Tier: model.TierContiv, Default: model.Pass}
	for _, r := range rules {
		x := desired.Rule{ID: r.Key.String(), Priority: r.Priority, Action: r.Action, AnyPeer: len(r.Peers) == 0, Ports: r.Ports}
		for _, p := range r.Peers {
			switch {
			case p.Selector != nil:
				n, _ := strconv.Atoi(string(p.Selector.Group))
				x.Identities = desired.IdentitiesOf(model.Identity(300 + n))
			case p.CIDR.IsValid():
				x.CIDRs = []desired.CIDR{{Prefix: p.CIDR.Masked(), Except: p.Except}}
			default:
				n, _ := strconv.Atoi(string(p.Network.Name))
				for i := range boundGroups {
					x.Identities = x.Identities.With(model.Identity(300 + n*boundGroups + i))
				}
				for _, s := range []string{"10.0.0.0/8", "fd00::/64"} {
					x.CIDRs = append(x.CIDRs, desired.CIDR{Prefix: netip.MustParsePrefix(s), Network: model.NetworkID(1 + n)})
				}
			}
		}
		if r.Direction == model.In {
			in.Rules = in.Rules.Set(x.ID, &x)
		} else {
			out.Rules = out.Rules.Set(x.ID, &x)
		}
	}
	return &desired.PolicySet{ID: 1, In: []desired.Tier{in}, Out: []desired.Tier{out}}
}

// TestPolicyMeterIsAnUpperBound: what netmaster counts of a policy is never less than what this
// driver makes of it, nor much more, and what it accepts at most fits twice into
// the map.
func TestPolicyMeterIsAnUpperBound(t *testing.T) {
	spec, err := loadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	if n := spec.Maps["rules"].MaxEntries; n < 2*model.MaxPolicyEntries {
		t.Errorf("the map holds %d rules, netmaster accepts %d", n, model.MaxPolicyEntries)
	}
	identities := func(s model.Selector) int {
		if s.Group != "" {
			return 1
		}
		return boundGroups
	}
	rnd, rounds := rand.New(rand.NewPCG(9, 10)), 100
	if conformance.Full() {
		rounds = 400
	}
	for round := range rounds {
		var rules []model.PolicyRule
		wide := rnd.IntN(2)
		for i := range round % 4 { // alone: the most that ports beside a rule for all can take
			rules = append(rules, model.Rule{
				Key:       model.RuleKey{Tenant: "t", Policy: "p", Rule: model.RuleID("only" + strconv.Itoa(i))},
				Direction: model.In, Action: model.Allow, Priority: 1 + min(i, 1), Protocol: model.ProtoTCP, Port: uint16(i * 0x5a5a),
			}.General())
		}
		many := rnd.IntN(400)
		if round < 4 {
			many = 0
		}
		for i := range many {
			r := model.Rule{
				Key:       model.RuleKey{Tenant: "t", Policy: "p", Rule: model.RuleID(strconv.Itoa(i))},
				Direction: []model.Direction{model.In, model.Out}[rnd.IntN(2)],
				Action:    []model.Action{model.Allow, model.Deny}[rnd.IntN(2)],
				Priority:  1 + rnd.IntN(20),
				Protocol:  model.ProtoTCP,
				Port:      uint16(1 + rnd.IntN(65535)>>rnd.IntN(16)),
			}
			if rnd.IntN(8) == 0 {
				r.Protocol = []model.Protocol{model.AnyProtocol, model.ProtoUDP, model.ProtoSCTP, model.ProtoICMP, model.ProtoICMPv6, 47}[rnd.IntN(6)]
			}
			if !r.Protocol.HasPorts() || wide > 0 && rnd.IntN(40) == 0 {
				r.Port = 0
			}
			switch rnd.IntN(6) {
			case 0:
				r.Group = model.GroupName(strconv.Itoa(rnd.IntN(2 * boundGroups)))
			case 1:
				r.Network = model.NetworkName(strconv.Itoa(rnd.IntN(2)))
			case 2, 3, 4:
				a := netip.AddrFrom4([4]byte{10, byte(rnd.IntN(3)), byte(rnd.IntN(3)), byte(rnd.IntN(256))})
				if rnd.IntN(4) == 0 {
					a = netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(rnd.IntN(3)), 15: byte(rnd.IntN(256))})
				}
				r.Addr, _ = a.Prefix(a.BitLen() - rnd.IntN(a.BitLen()+1)>>rnd.IntN(6))
			}
			g := r.General()
			if r.Addr.IsValid() && rnd.IntN(3) == 0 { // what only a general rule has
				for range 1 + rnd.IntN(2) {
					x, _ := r.Addr.Addr().Prefix(r.Addr.Bits() + rnd.IntN(r.Addr.Addr().BitLen()-r.Addr.Bits()+1))
					g.Peers[0].Except = append(g.Peers[0].Except, x)
				}
			}
			if len(g.Ports) > 0 && g.Ports[0].Protocol.HasPorts() && rnd.IntN(3) == 0 {
				g.Ports[0].Hi = min(65535, g.Ports[0].Lo+uint16(rnd.IntN(1000)))
			}
			rules = append(rules, g)
		}
		u := newTurned(t)
		u.turn(contivSet(rules), -1)
		if n, most := len(u.have()), model.NewPolicyMeter(rules).Entries(identities); n > most || n*4 < most && n > 100 {
			t.Fatalf("round %d: %d entries, bound %d, of %+v", round, n, most, rules)
		}
	}
}
