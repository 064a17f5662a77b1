package ovs

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestOnlyAdditionsRevokeNothing makes one change at a time to a host and checks which of
// them make Apply wait until no packet is judged by the former tables.
func TestOnlyAdditionsRevokeNothing(t *testing.T) {
	vx := &desired.Network{ID: 1, Key: model.NetworkKey{Tenant: "blue", Name: "vx"}, Encap: model.EncapVXLAN, Tag: 100, Subnet: netip.MustParsePrefix("10.1.0.0/16")}
	vl := &desired.Network{ID: 2, Key: model.NetworkKey{Tenant: "blue", Name: "vl"}, Encap: model.EncapVLAN, Tag: 10, Subnet: netip.MustParsePrefix("10.2.0.0/16")}
	port := func(name string, last byte, set desired.PolicySetID) *desired.Port {
		return &desired.Port{IfName: name, Network: 1, MAC: model.MAC{2, 2, 10, 1, 0, last}, IPv4: netip.AddrFrom4([4]byte{10, 1, 0, last}), Identity: 300, Policies: set}
	}
	remote := func(n model.NetworkID, id model.Identity) (desired.RemoteKey, *desired.Remote) {
		r := &desired.Remote{Network: n, MAC: model.MAC{2, 2, 10, byte(n), 0, 9}, IPv4: netip.AddrFrom4([4]byte{10, byte(n), 0, 9}), Identity: id, VTEP: netip.AddrFrom4([4]byte{1, 2, 3, 4})}
		return desired.RemoteKey{Network: n, MAC: r.MAC}, r
	}
	rule := func(id string, action model.Action, peers ...model.Identity) desired.Rule {
		return desired.Rule{ID: id, Priority: 5, Action: action, Identities: desired.IdentitiesOf(peers...)}
	}
	set := func(id desired.PolicySetID, rules ...desired.Rule) *desired.PolicySet {
		return &desired.PolicySet{ID: id, Name: "p", In: []desired.Tier{{Tier: model.TierContiv, Default: model.Deny, Rules: desired.RulesOf(rules...)}}}
	}
	have := desired.Host{Name: "h1", ArpMode: model.ArpProxy}
	have.Networks = have.Networks.Set(1, vx).Set(2, vl)
	have.Ports = have.Ports.Set("cv1", port("cv1", 1, 5))
	have.Remotes = have.Remotes.Set(remote(1, 301))
	have.PolicySets = have.PolicySets.Set(5, set(5, rule("r1", model.Allow, 301)))
	key, _ := remote(1, 301)
	for _, c := range []struct {
		name    string
		revokes bool
		change  func(*desired.Host)
	}{
		{"a port comes", false, func(h *desired.Host) { h.Ports = h.Ports.Set("cv2", port("cv2", 2, 5)) }},
		{"a port comes with a policy set that denies", false, func(h *desired.Host) {
			h.Ports = h.Ports.Set("cv2", port("cv2", 2, 6))
			h.PolicySets = h.PolicySets.Set(6, set(6, rule("r1", model.Deny, 301)))
		}},
		{"a VXLAN endpoint comes", false, func(h *desired.Host) {
			k, r := remote(1, 302)
			k.MAC[5], r.MAC[5], r.IPv4 = 8, 8, netip.MustParseAddr("10.1.0.8")
			h.Remotes = h.Remotes.Set(k, r)
		}},
		{"a rule that allows", false, func(h *desired.Host) {
			h.PolicySets = h.PolicySets.Set(5, set(5, rule("r1", model.Allow, 301), rule("r2", model.Allow, 302)))
		}},
		{"another peer that is allowed", false, func(h *desired.Host) { h.PolicySets = h.PolicySets.Set(5, set(5, rule("r1", model.Allow, 301, 302))) }},
		{"a VLAN endpoint comes, whose address was a stranger's", true, func(h *desired.Host) { h.Remotes = h.Remotes.Set(remote(2, 302)) }},
		{"a rule that denies", true, func(h *desired.Host) {
			h.PolicySets = h.PolicySets.Set(5, set(5, rule("r1", model.Allow, 301), rule("r2", model.Deny, 302)))
		}},
		{"a rule that passes on", true, func(h *desired.Host) {
			h.PolicySets = h.PolicySets.Set(5, set(5, rule("r1", model.Allow, 301), rule("r2", model.Pass, 302)))
		}},
		{"a removed allow", true, func(h *desired.Host) { h.PolicySets = h.PolicySets.Set(5, set(5)) }},
		{"a peer that is allowed no more", true, func(h *desired.Host) { h.PolicySets = h.PolicySets.Set(5, set(5, rule("r1", model.Allow))) }},
		{"another identity", true, func(h *desired.Host) { h.Remotes = h.Remotes.Set(remote(1, 302)) }},
		{"a port's first policy set", true, func(h *desired.Host) {
			h.Ports = h.Ports.Set("cv1", port("cv1", 1, 6))
			h.PolicySets = h.PolicySets.Set(6, set(6))
		}},
		{"an endpoint goes", true, func(h *desired.Host) { h.Remotes = h.Remotes.Delete(key) }},
		{"a port goes", true, func(h *desired.Host) { h.Ports = h.Ports.Delete("cv1") }},
		{"a network comes", true, func(h *desired.Host) {
			n := *vx
			n.ID, n.Key.Name, n.Tag = 3, "vx2", 101
			h.Networks = h.Networks.Set(3, &n)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newFlowState()
			cfg := pipeline.Config{ArpMode: model.ArpProxy, Tunnel: 1, Uplink: 2}
			numbers := map[string]uint32{"cv1": 10, "cv2": 11}
			p.update(have, cfg, numbers)
			flush(p.ledger)
			want := have
			c.change(&want)
			p.update(want, cfg, numbers)
			edits := p.ledger.edits()
			if len(edits) == 0 {
				t.Fatal("no flow changes")
			}
			if got := p.revokes(edits); got != c.revokes {
				t.Errorf("revokes: %v, want %v", got, c.revokes)
			}
		})
	}
}
