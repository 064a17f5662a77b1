package aci_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

const (
	histories = 50
	steps     = 8
)

// world is objects that a history changes.
type world struct {
	*rand.Rand
	settings model.AciGw
	groups   map[model.GroupKey]aci.Group
	networks map[model.NetworkKey]model.Network
	profiles map[model.AppProfileKey]model.AppProfile
	rules    map[model.RuleKey]model.Rule
	external []model.ExtContracts
}

func newWorld(seed uint64) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 1)), settings: settings(), groups: map[model.GroupKey]aci.Group{}, networks: map[model.NetworkKey]model.Network{},
		profiles: map[model.AppProfileKey]model.AppProfile{}, rules: map[model.RuleKey]model.Rule{},
	}
	for i, tenant := range []model.TenantName{"blue", "red.ish"} {
		for n := range 3 {
			k := model.NetworkKey{Tenant: tenant, Name: model.NetworkName(fmt.Sprint("net", n))}
			w.networks[k] = model.Network{Key: k, Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(n), 0}), 24), Gateway: netip.AddrFrom4([4]byte{10, byte(i), byte(n), 1})}
		}
		w.external = append(w.external,
			model.ExtContracts{Key: model.ExtContractsKey{Tenant: tenant, Name: "in"}, Type: model.ContractsProvided, Contracts: []string{"uni/tn-common/brc-internet", "uni/tn-" + string(tenant) + "/brc-theirs"}},
			model.ExtContracts{Key: model.ExtContractsKey{Tenant: tenant, Name: "out"}, Type: model.ContractsConsumed, Contracts: []string{"uni/tn-common/brc-internet"}})
		for g := range 6 {
			w.changeGroup(model.GroupKey{Tenant: tenant, Name: model.GroupName(fmt.Sprint("g", g))}, uint16(100*(i+1)+g))
		}
	}
	for range 12 {
		w.step()
	}
	return w
}

func (w *world) tenant() model.TenantName {
	return []model.TenantName{"blue", "blue", "red.ish"}[w.IntN(3)]
}

func pick[K comparable, V any](w *world, m map[K]V) (K, bool) {
	// Maps have no order, and a history must be the same each time.
	keys := slices.SortedFunc(maps.Keys(m), func(a, b K) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if len(keys) == 0 {
		var zero K
		return zero, false
	}
	return keys[w.IntN(len(keys))], true
}

func (w *world) changeGroup(k model.GroupKey, vlan uint16) {
	g := aci.Group{Group: model.Group{Key: k, Network: model.NetworkName(fmt.Sprint("net", w.IntN(3)))}, VLAN: vlan}
	for p := range 3 {
		if w.IntN(2) == 0 {
			g.Policies = append(g.Policies, model.PolicyName(fmt.Sprint("p", p)))
		}
	}
	for _, e := range []string{"in", "out"} {
		if w.IntN(3) == 0 {
			g.ExtContracts = append(g.ExtContracts, e)
		}
	}
	w.groups[k] = g
}

// step changes one thing.
func (w *world) step() {
	switch n := w.IntN(20); {
	case n < 9: // a rule
		tenant := w.tenant()
		k := model.RuleKey{Tenant: tenant, Policy: model.PolicyName(fmt.Sprint("p", w.IntN(3))), Rule: model.RuleID(strconv.Itoa(w.IntN(4)))}
		r := model.Rule{Key: k, Direction: model.In, Priority: 1, Action: model.Allow, Protocol: model.ProtoTCP, Port: []uint16{0, 22, 80, 443, 5432}[w.IntN(5)]}
		switch w.IntN(6) {
		case 0:
			r.Protocol, r.Port = model.AnyProtocol, 0
		case 1:
			r.Protocol, r.Port = model.Protocol(1+w.IntN(255)), 0
		case 2:
			r.Protocol = model.ProtoUDP
		case 3:
			r.Action = model.Deny
		}
		if w.IntN(4) > 0 {
			r.Group = model.GroupName(fmt.Sprint("g", w.IntN(6)))
		}
		if r.Group != "" && w.IntN(3) == 0 {
			r.Direction = model.Out
		}
		w.rules[k] = r
		if w.IntN(2) == 0 { // the same by another policy: what goes by one stays by the other
			k.Policy = model.PolicyName(fmt.Sprint("p", w.IntN(3)))
			r.Key = k
			w.rules[k] = r
		}
	case n < 12:
		if k, ok := pick(w, w.rules); ok {
			delete(w.rules, k)
		}
	case n < 15: // a group's policies, network and contracts; now and then its VLAN
		if k, ok := pick(w, w.groups); ok {
			vlan := w.groups[k].VLAN
			if w.IntN(3) == 0 {
				vlan = (vlan + 1000) % 2000
			}
			w.changeGroup(k, vlan)
		}
	case n < 18: // a profile's groups
		k := model.AppProfileKey{Tenant: w.tenant(), Name: fmt.Sprint("app", w.IntN(2))}
		p := model.AppProfile{Key: k}
		for g := range 6 {
			if g%2 == int(k.Name[3]-'0') && w.IntN(4) > 0 {
				p.Groups = append(p.Groups, model.GroupName(fmt.Sprint("g", g)))
			}
		}
		w.profiles[k] = p
	case n < 19:
		if k, ok := pick(w, w.profiles); ok {
			delete(w.profiles, k)
		}
	default:
		w.settings.EnforcePolicies = !w.settings.EnforcePolicies
		w.settings.PathBindings = []string{"topology/pod-1/paths-101/pathep-[eth1/14]", "topology/pod-1/paths-102/pathep-[eth1/3]"}[:1+w.IntN(2)]
	}
}

func (w *world) fabric() aci.Fabric {
	f := aci.Fabric{Settings: w.settings, External: w.external}
	for p := range maps.Values(w.profiles) {
		f.Profiles = append(f.Profiles, p)
	}
	for g := range maps.Values(w.groups) {
		f.Groups = append(f.Groups, g)
	}
	for n := range maps.Values(w.networks) {
		f.Networks = append(f.Networks, n)
	}
	for r := range maps.Values(w.rules) {
		f.Rules = append(f.Rules, r)
	}
	return f
}

// theirs puts objects of others into sim, among ours and beside them.
func theirs(t *testing.T, sim *acitest.APIC) (dns map[string]bool) {
	t.Helper()
	before := sim.Tree()
	put(t, sim, "uni/tn-green", "fvTenant", "annotation", "orchestrator:contiv-two")
	put(t, sim, "uni/tn-green/brc-x", "vzBrCP", "annotation", "orchestrator:contiv-two")
	put(t, sim, "uni/tn-blue", "fvTenant", "descr", "made by hand")
	put(t, sim, "uni/tn-blue/brc-theirs", "vzBrCP")
	put(t, sim, "uni/tn-blue/out-wan", "l3extOut")
	put(t, sim, "uni/tn-blue/out-wan/instP-all", "l3extInstP")
	put(t, sim, "uni/tn-blue/out-wan/instP-all/rscons-theirs", "fvRsCons")
	put(t, sim, "uni/tn-blue/BD-net1", "fvBD", "unicastRoute", "no")
	put(t, sim, "uni/tn-blue/ap-app0", "fvAp", "prio", "level2")
	put(t, sim, "uni/tn-blue/ap-app0/epg-legacy", "fvAEPg")
	put(t, sim, "uni/tn-blue/ap-app0/epg-legacy/rsprov-theirs", "fvRsProv")
	put(t, sim, "uni/tn-blue/ap-app0/epg-g4", "fvAEPg", "descr", "has the name of a group of ours")
	return differences(before, sim.Tree())
}

// TestTreeEqualsOneMadeFromNothing: after any history the tree equals the one made from nothing. On the way
// only differences are written, objects that stay are never recreated, connections allowed
// before and after are allowed at every moment, and objects of others are unchanged. In
// half of the histories requests fail.
func TestTreeEqualsOneMadeFromNothing(t *testing.T) {
	var struck, watched atomic.Int64 // writes that failed; histories in which something was written
	t.Cleanup(func() {
		if watched.Load() < histories*9/10 { // one that never has a profile of groups writes nothing
			t.Errorf("only %d histories have changed anything", watched.Load())
		}
		if struck.Load() < histories/2 {
			t.Errorf("only %d writes were made to fail", struck.Load())
		}
	})
	for seed := range uint64(histories) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			w, sim := newWorld(seed), newSim(t)
			foreign := theirs(t, sim)
			was := sim.Tree()
			watch := &watcher{t: t, foreign: foreign}
			sim.After = watch.after
			target := newAPIC(t, sim)
			for n := range steps {
				fresh := newSim(t)
				theirs(t, fresh)
				if n > 0 {
					for range 1 + w.IntN(4) {
						w.step()
					}
				}
				f := w.fabric()
				if _, err := newAPIC(t, fresh).Apply(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				watch.expect(sim.Tree(), fresh.Tree())
				if seed%2 == 1 {
					fail(t, w, sim, target, f, &struck)
				}
				sim.Fault = nil
				if _, err := target.Apply(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				if d := differences(sim.Tree(), fresh.Tree()); len(d) > 0 {
					a, b := lines(sim.Tree()), lines(fresh.Tree())
					for dn := range d {
						t.Errorf("step %d: %s:\n has     %s\n of none %s", n, dn, a[dn], b[dn])
					}
					t.FailNow()
				}
				sim.Requests()
				if again, err := target.Apply(t.Context(), f); err != nil || again.Writes > 0 || len(writes(sim.Requests())) > 0 {
					t.Fatalf("step %d: applied again, it writes: %v, %v", n, again, err)
				}
			}
			for dn := range foreign {
				if sim.Tree()[dn].Born != was[dn].Born || lines(sim.Tree())[dn] != lines(was)[dn] {
					t.Errorf("%s is not ours and has changed", dn)
				}
			}
			if watch.changes > 0 {
				watched.Add(1)
			}
		})
	}
}

// fail has some tries go wrong.
func fail(t *testing.T, w *world, sim *acitest.APIC, target *aci.APIC, f aci.Fabric, struck *atomic.Int64) {
	t.Helper()
	for range 3 {
		at, what := 1+w.IntN(40), []acitest.Fault{acitest.Unavailable, acitest.Ended, acitest.Cut, acitest.CutAfter, acitest.Nonsense, acitest.Empty, acitest.Ignored}[w.IntN(7)]
		sim.Fault = func(r *http.Request) acitest.Fault {
			if at--; at == 0 {
				if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/api/mo/") {
					struck.Add(1)
				}
				return what
			}
			return acitest.None
		}
		if _, err := target.Apply(t.Context(), f); err == nil && at <= 0 && what != acitest.Ended && what != acitest.Ignored {
			t.Fatalf("fault %v was not noticed", what)
		}
	}
}

// watcher looks at every change that a simulator makes.
type watcher struct {
	t       *testing.T
	foreign map[string]bool
	may     map[string]bool // be written
	stay    map[string]int  // DNs before and after, with when they were made
	let     map[string]bool // through before and after
	changes int
}

func (w *watcher) expect(before, after acitest.Tree) {
	w.may, w.stay, w.let = differences(before, after), map[string]int{}, map[string]bool{}
	for dn, o := range before {
		if _, ok := after[dn]; ok {
			w.stay[dn] = o.Born
		}
	}
	then := permits(after)
	for p := range permits(before) {
		if then[p] {
			w.let[p] = true
		}
	}
}

func (w *watcher) after(tree acitest.Tree, made acitest.Request) {
	w.changes++
	for _, c := range made.Changes {
		if w.foreign[c.DN] {
			w.t.Errorf("%s %s: is not ours", c.What, c.DN)
		}
		if !w.may[c.DN] {
			w.t.Errorf("%s %s, which does not differ", c.What, c.DN)
		}
	}
	for dn, born := range w.stay {
		if o, ok := tree[dn]; !ok || o.Born != born {
			w.t.Errorf("after %s %s: %s is gone, or made anew", made.Method, made.Path, dn)
		}
	}
	now := permits(tree)
	for p := range w.let {
		if !now[p] {
			w.t.Errorf("after %s %s: not let through: %s", made.Method, made.Path, p)
		}
	}
}
