package pipeline

import (
	"math/rand"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// policySet is all flows of a set; of several with one key, the flow of the rule
// with the smallest ID.
func policySet(t *testing.T, s *desired.PolicySet) []of.Flow {
	t.Helper()
	flows, err := SetBaseFlows(s, false)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, out := range []bool{false, true} {
		tiers := s.In
		if out {
			tiers = s.Out
		}
		for i, tier := range tiers {
			for _, r := range tier.Ordered() {
				if err := CheckRule(r); err != nil {
					t.Fatal(err)
				}
				own := Rule(Config{}, RulePosition{Set: s.ID, Out: out, Tier: i, Last: i == len(tiers)-1}, r)
				if n := FlowsOf(r); n < len(own) {
					t.Errorf("rule %s has %d flows, counted as %d", r.ID, len(own), n)
				}
				for _, f := range own {
					if k := f.Key(); !seen[k] {
						seen[k] = true
						flows = append(flows, f)
					}
				}
			}
		}
	}
	return flows
}

// TestFlowMeterCovers: netmaster counts no fewer flows than there are.
func TestFlowMeterCovers(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 2000 {
		var stored model.PolicyRule
		r := &desired.Rule{ID: "r", AnyPeer: rng.Intn(4) == 0}
		for range rng.Intn(4) {
			m := model.PortMatch{Protocol: []model.Protocol{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP, model.ProtoICMP, model.ProtoICMPv6, 47}[rng.Intn(6)], Hi: 65535}
			if m.Protocol.HasPorts() {
				m.Lo = uint16(rng.Intn(65536))
				m.Hi = m.Lo + uint16(rng.Intn(65536-int(m.Lo)))
			}
			r.Ports = append(r.Ports, m)
		}
		stored.Ports = r.Ports
		for range rng.Intn(3) {
			if r.AnyPeer {
				break
			}
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rng.Intn(4))}), 8+rng.Intn(8)).Masked()
			if rng.Intn(2) == 0 {
				p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, byte(rng.Intn(4))}), 8+rng.Intn(8)).Masked()
			}
			x := desired.CIDR{Prefix: p}
			for range rng.Intn(3) {
				x.Except = append(x.Except, netip.PrefixFrom(p.Addr(), p.Bits()+1+rng.Intn(16)))
			}
			r.CIDRs = append(r.CIDRs, x)
			stored.Peers = append(stored.Peers, model.Peer{CIDR: p, Except: x.Except})
		}
		if n := rng.Intn(3); n > 0 && !r.AnyPeer {
			for i := range n {
				r.Identities = r.Identities.With(model.Identity(300 + i))
			}
			stored.Peers = append(stored.Peers, model.Peer{Selector: &model.Selector{Tenant: "t"}})
		}
		if len(stored.Peers) == 0 {
			r.AnyPeer = true
		}
		var m model.FlowMeter
		m.Add(stored, 1)
		counted := m.Flows(func(model.Selector) int { return r.Identities.Len() })
		if made := len(Rule(Config{}, RulePosition{Set: 1}, r)); counted < made || FlowsOf(r) < made {
			t.Fatalf("%d flows, counted as %d by netmaster and %d here, of %+v", made, counted, FlowsOf(r), r)
		}
	}
}
