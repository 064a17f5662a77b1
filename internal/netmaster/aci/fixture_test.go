package aci_test

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

const blue = model.TenantName("blue")

func settings() model.AciGw {
	return model.AciGw{
		PhysicalDomain: "containers", EnforcePolicies: true,
		PathBindings: []string{"topology/pod-1/paths-101/pathep-[eth1/14]"}, NodeBindings: []string{"topology/pod-1/node-102"},
	}
}

func network(name string) model.Network {
	return model.Network{
		Key: model.NetworkKey{Tenant: blue, Name: model.NetworkName(name)}, Encap: model.EncapVLAN,
		Subnet: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.1"),
		Subnet6: netip.MustParsePrefix("2001:db8::/64"), Gateway6: netip.MustParseAddr("2001:db8::1"),
	}
}

func group(name string, vlan uint16, policies ...model.PolicyName) aci.Group {
	return aci.Group{Group: model.Group{Key: model.GroupKey{Tenant: blue, Name: model.GroupName(name)}, Network: "net", Policies: policies}, VLAN: vlan}
}

// rule returns an allow rule towards a group's endpoints.
func rule(policy, id, from string, p model.Protocol, port uint16) model.Rule {
	return model.Rule{
		Key:       model.RuleKey{Tenant: blue, Policy: model.PolicyName(policy), Rule: model.RuleID(id)},
		Direction: model.In, Priority: 1, Action: model.Allow, Protocol: p, Port: port, Group: model.GroupName(from),
	}
}

// shop is two groups: web may speak to db as policy store says, and to anybody else
// outside as its external contracts do.
func shop() aci.Fabric {
	web := group("web", 101)
	web.ExtContracts = []string{"out"}
	return aci.Fabric{
		Settings: settings(),
		Profiles: []model.AppProfile{{Key: model.AppProfileKey{Tenant: blue, Name: "shop"}, Groups: []model.GroupName{"web", "db"}}},
		Groups:   []aci.Group{web, group("db", 102, "store")},
		Networks: []model.Network{network("net")},
		Rules:    []model.Rule{rule("store", "1", "web", model.ProtoTCP, 80), rule("store", "2", "web", model.ProtoICMP, 0)},
		External: []model.ExtContracts{{Key: model.ExtContractsKey{Tenant: blue, Name: "out"}, Type: model.ContractsConsumed, Contracts: []string{"uni/tn-common/brc-internet"}}},
	}
}

// newAPIC returns a client of sim that has no network between.
func newAPIC(t testing.TB, sim *acitest.APIC, change ...func(*aci.APICConfig)) *aci.APIC {
	t.Helper()
	cfg := aci.APICConfig{URLs: []string{"https://apic1"}, User: sim.User, Password: sim.Password, Cluster: "one", Transport: acitest.Direct(sim), Now: sim.Now}
	for _, c := range change {
		c(&cfg)
	}
	a, err := aci.NewAPIC(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newSim(t testing.TB) *acitest.APIC {
	t.Helper()
	sim := acitest.NewAPIC()
	put(t, sim, "uni/tn-common/brc-internet", "vzBrCP")
	return sim
}

func put(t testing.TB, sim *acitest.APIC, dn, class string, props ...string) {
	t.Helper()
	if err := sim.Put(dn, class, props...); err != nil {
		t.Fatal(err)
	}
}

// apply has the fabric be f without a problem.
func apply(t testing.TB, a aci.Target, f aci.Fabric) aci.Report {
	t.Helper()
	r, err := a.Apply(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Problems) > 0 {
		t.Fatalf("problems: %v", r.Problems)
	}
	return r
}

// lines returns a tree as text, each object's DN, class and the properties that are
// not the class's defaults.
func lines(tree acitest.Tree) map[string]string {
	out := map[string]string{}
	for dn, o := range tree {
		var props []string
		for k, v := range o.Props {
			props = append(props, k+"="+v)
		}
		slices.Sort(props)
		out[dn] = o.Class + " " + strings.Join(props, " ")
	}
	return out
}

// differences returns the DNs at which trees differ.
func differences(a, b acitest.Tree) map[string]bool {
	x, y, out := lines(a), lines(b), map[string]bool{}
	for dn := range x {
		if x[dn] != y[dn] {
			out[dn] = true
		}
	}
	for dn := range y {
		if x[dn] != y[dn] {
			out[dn] = true
		}
	}
	return out
}

// writes are the DNs that requests changed.
func writes(requests []acitest.Request) []string {
	dns := map[string]bool{}
	for _, r := range requests {
		for _, c := range r.Changes {
			dns[c.DN] = true
		}
	}
	return slices.Sorted(maps.Keys(dns))
}

// permits are what the tree lets through: consumer, provider and entry.
func permits(tree acitest.Tree) map[string]bool {
	entries, consumers, providers := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for dn, o := range tree {
		up := dn[:max(strings.LastIndexByte(dn, '/'), 0)]
		switch o.Class {
		case "vzRsSubjFiltAtt":
			brc := tree.Resolve(dn, "brc-"+strings.TrimPrefix(strings.Split(dn, "/")[2], "brc-"))
			filter := tree.Resolve(dn, "flt-"+o.Props["tnVzFilterName"])
			for e, eo := range tree {
				if filter != "" && eo.Class == "vzEntry" && strings.HasPrefix(e, filter+"/") && o.Props["action"] == "permit" {
					entries[brc] = append(entries[brc], eo.Props["prot"]+" "+eo.Props["dFromPort"]+"-"+eo.Props["dToPort"])
				}
			}
		case "fvRsCons":
			brc := tree.Resolve(dn, "brc-"+o.Props["tnVzBrCPName"])
			consumers[brc] = append(consumers[brc], up)
		case "fvRsProv":
			brc := tree.Resolve(dn, "brc-"+o.Props["tnVzBrCPName"])
			providers[brc] = append(providers[brc], up)
		}
	}
	out := map[string]bool{}
	for brc, list := range entries {
		for _, e := range list {
			for _, p := range providers[brc] {
				out[p+" provides "+e+" by "+brc] = true
				for _, c := range consumers[brc] {
					out[c+" may "+e+" to "+p] = true
				}
			}
		}
	}
	return out
}

// firstly returns a fault for the first n requests that match.
func firstly(n int, f acitest.Fault, match func(*http.Request) bool) func(*http.Request) acitest.Fault {
	return func(r *http.Request) acitest.Fault {
		if n > 0 && match(r) {
			n--
			return f
		}
		return acitest.None
	}
}
