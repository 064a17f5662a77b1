package conformance

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// eachSet rewrites the policy sets of a desired state.
func eachSet(fn func(s *desired.PolicySet)) func(desired.Host) desired.Host {
	return func(h desired.Host) desired.Host {
		for id, s := range h.PolicySets.All() {
			c := *s
			c.In, c.Out = cloneTiers(s.In), cloneTiers(s.Out)
			fn(&c)
			h.PolicySets = h.PolicySets.Set(id, &c)
		}
		return h
	}
}

func cloneTiers(in []desired.Tier) []desired.Tier {
	out := slices.Clone(in)
	for i := range out {
		for id, r := range in[i].Rules.All() {
			c := *r
			c.CIDRs = slices.Clone(r.CIDRs)
			out[i].Rules = out[i].Rules.Set(id, &c)
		}
	}
	return out
}

func eachRule(fn func(r *desired.Rule)) func(desired.Host) desired.Host {
	return eachSet(func(s *desired.PolicySet) {
		for _, tiers := range [][]desired.Tier{s.In, s.Out} {
			for _, t := range tiers {
				for _, r := range t.Rules.All() {
					fn(r)
				}
			}
		}
	})
}

const addressesAnywhere = "networks of addresses ignored"

// faults are what a data plane that is wrong makes of a desired state.
func faults() map[string]func(desired.Host) desired.Host {
	return map[string]func(desired.Host) desired.Host{
		"allow wins a tie": eachRule(func(r *desired.Rule) {
			r.Priority = 3*r.Priority + map[model.Action]int{model.Allow: 2, model.Pass: 1}[r.Action]
		}),
		"lower priority wins": eachRule(func(r *desired.Rule) { r.Priority = desired.MaxPriority - r.Priority }),
		"directions swapped":  eachSet(func(s *desired.PolicySet) { s.In, s.Out = s.Out, s.In }),
		"actions swapped": eachRule(func(r *desired.Rule) {
			r.Action = map[model.Action]model.Action{model.Allow: model.Deny, model.Deny: model.Allow}[r.Action]
		}),
		"ports ignored": eachRule(func(r *desired.Rule) {
			if len(r.Ports) > 0 {
				r.Ports = []model.PortMatch{{Protocol: r.Ports[0].Protocol, Hi: 65535}}
			}
		}),
		"protocols ignored":  eachRule(func(r *desired.Rule) { r.Ports = nil }),
		"addresses ignored":  eachRule(func(r *desired.Rule) { r.CIDRs = nil }),
		"identities ignored": eachRule(func(r *desired.Rule) { r.Identities = desired.Identities{} }),
		addressesAnywhere: eachRule(func(r *desired.Rule) {
			for i := range r.CIDRs {
				r.CIDRs[i].Network = 0
			}
		}),
		"no match denies": eachSet(func(s *desired.PolicySet) {
			for _, tiers := range [][]desired.Tier{s.In, s.Out} {
				for i := range tiers {
					tiers[i].Default = model.Deny
				}
			}
		}),
		"defaults ignored": eachSet(func(s *desired.PolicySet) {
			for _, tiers := range [][]desired.Tier{s.In, s.Out} {
				for i := range tiers {
					tiers[i].Default = model.Pass
				}
			}
		}),
		"tiers reversed": eachSet(func(s *desired.PolicySet) {
			slices.Reverse(s.In)
			slices.Reverse(s.Out)
		}),
		"orders ignored": eachRule(func(r *desired.Rule) { r.Priority = (r.Priority - 1) % 100 }),
		"pass allows": eachRule(func(r *desired.Rule) {
			if r.Action == model.Pass {
				r.Action = model.Allow
			}
		}),
		"exceptions ignored": eachRule(func(r *desired.Rule) {
			for i := range r.CIDRs {
				r.CIDRs[i].Except = nil
			}
		}),
		"ends of ranges ignored": eachRule(func(r *desired.Rule) {
			for i, m := range r.Ports {
				if m.Hi < 65535 {
					r.Ports = slices.Clone(r.Ports)
					r.Ports[i].Hi = m.Lo
				}
			}
		}),
		"networks not joined": func(h desired.Host) desired.Host {
			for id, n := range h.Networks.All() {
				c := *n
				c.Joined = 0
				h.Networks = h.Networks.Set(id, &c)
			}
			return h
		},
		"policies not attached": func(h desired.Host) desired.Host {
			for name, p := range h.Ports.All() {
				c := *p
				c.Policies = 0
				h.Ports = h.Ports.Set(name, &c)
			}
			return h
		},
	}
}

// TestRandomClustersFindSeededFaults checks that seeded faults are found.
func TestRandomClustersFindSeededFaults(t *testing.T) {
	for name, mutate := range faults() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint32(3000) {
				w := newFuzzWorld(binary.BigEndian.AppendUint32([]byte("m"), seed), mutate)
				if err := w.run(6); err != nil {
					t.Logf("found after %d clusters", seed+1)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// TestPartOfTheClustersFindsSeededFaults: of the generated policies, whichever part of their exchanges each is
// tried with finds every fault that all of them find.
func TestPartOfTheClustersFindsSeededFaults(t *testing.T) {
	ctx := t.Context()
	top, labelled, routed := StandardTopology(), Labelled(StandardTopology()), RoutedTopology()
	generated := []struct {
		name  string
		top   Topology
		cases []Case
		of    func(Topology, *uint16) []namedPacket
	}{
		{"Packets", top, Cases(top), exchanges},
		{"Selectors", labelled, LabelCases(labelled, 1, 24), exchanges},
		{"RoutingPolicy", routed, RoutedCases(routed), routedExchanges},
	}
	for name, mutate := range faults() {
		found := false
		for _, g := range generated {
			var by [parts]bool // by seed
			byAll := false
			w, err := NewWorld(g.top, Case{})
			if err != nil {
				t.Fatal(err)
			}
			right, wrong, sport := reference.New(), reference.New(), uint16(30000)
			for n, c := range g.cases {
				if err := w.Switch(c); err != nil {
					t.Fatal(err)
				}
				pic := w.Desired["h1"]
				if _, err := right.Apply(ctx, pic); err != nil {
					t.Fatal(err)
				}
				if _, err := wrong.Apply(ctx, mutate(pic)); err != nil {
					t.Fatal(err)
				}
				for i, x := range g.of(g.top, &sport) {
					if right.Send(x.packet).Passed() == wrong.Send(x.packet).Passed() {
						continue
					}
					byAll = true
					for seed := range by {
						by[seed] = by[seed] || inPart(uint64(seed), n, i)
					}
				}
				if !slices.Contains(by[:], false) {
					break
				}
			}
			for seed, part := range by {
				if byAll && !part {
					t.Errorf("%s: %s is found by all exchanges, and not by the part of seed %d", g.name, name, seed)
				}
			}
			found = found || byAll
		}
		if !found && name != addressesAnywhere { // TestReferenceAgreesInRandomClusters finds that
			t.Errorf("%s is found by none", name)
		}
	}
}

// TestRandomClustersFindLostConnections checks that lost connections are found.
func TestRandomClustersFindLostConnections(t *testing.T) {
	for seed := range uint32(3000) {
		w := newFuzzWorld(binary.BigEndian.AppendUint32([]byte("m"), seed), nil)
		w.forget = true
		if err := w.run(6); err != nil {
			t.Logf("found after %d clusters", seed+1)
			return
		}
	}
	t.Error("not found")
}
