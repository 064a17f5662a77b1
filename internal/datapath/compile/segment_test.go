package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// fabric is a cluster of infrastructure type aci: network blue:n (number 1, VLAN 7) with
// groups web (number 11, VLAN 101) and db (12, 102), and group old without a VLAN.
func fabric() *Compiler {
	c := New("h1")
	g := model.DefaultGlobal()
	g.Infra = model.InfraACI
	c.SetGlobal(g)
	for i, h := range []model.HostName{"h1", "h2"} {
		c.SetHost(model.Host{Name: h, VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(1 + i)})})
	}
	c.SetTenant(model.Tenant{Name: "blue", Router: 1})
	c.SetNetwork(model.Network{
		Key: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: 1, Tag: 7, Encap: model.EncapVLAN,
		Subnet: netip.MustParsePrefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.254"),
	})
	c.SetGroup(ofFabric("web", 101, 11))
	c.SetGroup(ofFabric("db", 102, 12))
	c.SetGroup(ofFabric("old", 0, 0))
	for i, e := range []struct {
		group model.GroupName
		host  model.HostName
	}{{"web", "h1"}, {"web", "h2"}, {"db", "h1"}, {"db", "h2"}, {"old", "h1"}, {"", "h2"}} {
		c.SetEndpoint(onFabric(i, e.group, e.host))
	}
	return c
}

func ofFabric(name model.GroupName, vlan uint16, segment model.NetworkID, policies ...model.PolicyName) model.Group {
	return model.Group{Key: model.GroupKey{Tenant: "blue", Name: name}, Network: "n", VLAN: vlan, Segment: segment, Policies: policies}
}

// onFabric is endpoint i, with address 10.1.0.i.
func onFabric(i int, group model.GroupName, host model.HostName) model.Endpoint {
	return model.Endpoint{
		Key:  model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: model.EndpointID(fmt.Sprint("e", i))},
		Host: host, Group: group, Identity: model.IdentityFirst + model.Identity(i),
		IPv4: netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), MAC: model.MAC{2, 2, 0, 0, 0, byte(i)},
	}
}

// onSegments says, for each network of a desired state, its VLAN, which endpoints are ports and
// which are remote there, and for those whether they have a tunnel.
func onSegments(h desired.Host) map[string]string {
	out := map[string]string{}
	for id, n := range h.Networks.All() {
		var ports, remotes []string
		for _, p := range h.Ports.All() {
			if p.Network == id {
				ports = append(ports, string(p.Endpoint.ID))
			}
		}
		for k, r := range h.Remotes.All() {
			if k.Network != id {
				continue
			}
			text := fmt.Sprint("e", int(r.IPv4.As4()[3]))
			if r.Identity != model.IdentityFirst+model.Identity(r.IPv4.As4()[3]) || k.MAC != r.MAC {
				text += " is another"
			}
			if r.VTEP.IsValid() {
				text += " by tunnel"
			}
			remotes = append(remotes, text)
		}
		slices.Sort(ports)
		slices.Sort(remotes)
		out[fmt.Sprintf("%d %s %s", id, n.Key, n.Group)] = fmt.Sprintf("VLAN %d router %d: %s, beside %s", n.Tag, n.Joined, strings.Join(ports, " "), strings.Join(remotes, " "))
	}
	return out
}

// TestGroupsWithAVLANAreSegments checks that a group's endpoints are on a segment of the group's number and
// VLAN alone, where all others of the network, those of this host too, are remote ones
// without a tunnel; that no router joins it; and that it follows its group.
func TestGroupsWithAVLANAreSegments(t *testing.T) {
	c := fabric()
	g := model.DefaultGlobal()
	g.Infra, g.FwdMode = model.InfraACI, model.FwdRouting
	c.SetGlobal(g)
	same := func(when string, want map[string]string) desired.Host {
		t.Helper()
		h, _ := c.Compile(1)
		if diff := gocmp.Diff(want, onSegments(h)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		return h
	}
	own := "VLAN 7 router 1: e4, beside e0 e1 e2 e3 e5 by tunnel"
	h := same("at first", map[string]string{
		"1 blue:n ":     own,
		"11 blue:n web": "VLAN 101 router 0: e0, beside e1 e2 e3 e4 e5",
		"12 blue:n db":  "VLAN 102 router 0: e2, beside e0 e1 e3 e4 e5",
	})
	for _, n := range h.Networks.All() {
		if n.Subnet != netip.MustParsePrefix("10.1.0.0/24") || n.Group != "" && n.Router().IsValid() {
			t.Errorf("%+v: another subnet, or a router of ours in the place of the fabric's", n)
		}
	}
	// An endpoint moves, to another host and to another group.
	c.SetEndpoint(onFabric(2, "db", "h2"))
	c.SetEndpoint(onFabric(1, "web", "h1"))
	same("moved", map[string]string{"1 blue:n ": own, "11 blue:n web": "VLAN 101 router 0: e0 e1, beside e2 e3 e4 e5"})
	c.SetEndpoint(onFabric(1, "db", "h1"))
	same("of another group", map[string]string{
		"1 blue:n ": own, "11 blue:n web": "VLAN 101 router 0: e0, beside e1 e2 e3 e4 e5", "12 blue:n db": "VLAN 102 router 0: e1, beside e0 e2 e3 e4 e5",
	})
	// A group's VLAN is another one, comes and goes.
	c.SetGroup(ofFabric("web", 103, 11))
	c.SetGroup(ofFabric("db", 0, 0))
	c.SetGroup(ofFabric("old", 104, 14))
	same("other VLANs", map[string]string{
		"1 blue:n ":     "VLAN 7 router 1: e1, beside e0 e2 by tunnel e3 by tunnel e4 e5 by tunnel",
		"11 blue:n web": "VLAN 103 router 0: e0, beside e1 e2 e3 e4 e5", "14 blue:n old": "VLAN 104 router 0: e4, beside e0 e1 e2 e3 e5",
	})
	// Without its network, or on one of encap vxlan, there is none.
	c.DeleteNetwork(model.NetworkKey{Tenant: "blue", Name: "n"})
	same("no network", map[string]string{})
	if _, problems := c.Compile(2); !slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Object == "network blue:n of group web" && strings.Contains(p.Text, "stay shut")
	}) {
		t.Error("nobody is told: ", problems)
	}
}

// TestSegmentsHaveThePoliciesThatSelectTheirEndpoints checks which policies apply on a segment: not the policies that the
// group's record names, known or not, which are the fabric's, but the ones that select its
// endpoints. Peers of a network are peers on its segments too.
func TestSegmentsHaveThePoliciesThatSelectTheirEndpoints(t *testing.T) {
	c := fabric()
	for _, g := range []model.Group{ofFabric("web", 101, 11, "p", "unknown"), ofFabric("old", 0, 0, "p")} {
		c.SetGroup(g)
	}
	c.SetPolicy(model.ContivPolicy{Key: model.PolicyKey{Tenant: "blue", Name: "p"}}.General())
	r := model.Rule{Key: model.RuleKey{Tenant: "blue", Policy: "p", Rule: "1"}, Direction: model.In, Priority: 1, Action: model.Deny, Protocol: model.AnyProtocol, Network: "n"}
	c.SetRule(r.General())
	for i := range 6 {
		c.SetIdentity(model.IdentityRecord{
			ID: model.IdentityFirst + model.Identity(i), Network: model.NetworkKey{Tenant: "blue", Name: "n"},
			Group: []model.GroupName{"web", "web", "db", "db", "old", ""}[i],
		})
	}
	set := func(h desired.Host, id model.EndpointID) *desired.PolicySet {
		for _, p := range h.Ports.All() {
			if p.Endpoint.ID == id {
				s, _ := h.PolicySets.Get(p.Policies)
				return s
			}
		}
		t.Fatalf("%s is no port", id)
		return nil
	}
	h, _ := c.Compile(1)
	if s := set(h, "e0"); s != nil {
		t.Errorf("a port on a segment has %+v", s)
	}
	s := set(h, "e4")
	if s == nil {
		t.Fatal("a port without a segment has no policy")
	}
	var at []model.NetworkID
	for _, tier := range s.In {
		for r := range maps.Values(maps.Collect(tier.Rules.All())) {
			for _, x := range r.CIDRs {
				at = append(at, x.Network)
			}
		}
	}
	if slices.Sort(at); !slices.Equal(at, []model.NetworkID{1, 11, 12}) {
		t.Errorf("the network's own addresses are peers on %d, want on the network and its segments", at)
	}
	c.SetPolicy(model.Policy{
		Key: model.PolicyKey{Tenant: "blue", Name: "s"}, Kind: model.KindNetwork, Tier: model.TierContiv, Default: model.Defaults{In: model.Deny, Out: model.Pass},
		Applies: model.Selector{Tenant: "blue", Group: "web"},
	})
	h, _ = c.Compile(2)
	if s := set(h, "e0"); s == nil || !strings.Contains(s.Name, "blue/s") && !strings.Contains(s.Name, "s") {
		t.Errorf("a policy that selects a group with a VLAN does not apply: %+v", s)
	}
}

// TestUnknownSegmentsAreReported checks what is said of a group that the fabric does not know, and of
// services, which do not lead to segments.
func TestUnknownSegmentsAreReported(t *testing.T) {
	c := fabric()
	key := model.ServiceKey{Tenant: "blue", Name: "s"}
	c.SetService(model.Service{Key: key, Network: model.NetworkKey{Tenant: key.Tenant, Name: "n"}, Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.100")}, Selectors: []model.ServiceSelector{{Key: "a", Value: "1"}}})
	for i, g := range []model.GroupName{"web", "", "", "", "old"} {
		if g == "" {
			continue
		}
		e := onFabric(i, g, "h1")
		e.Labels = map[string]string{"a": "1"}
		c.SetEndpoint(e)
	}
	h, problems := c.Compile(1)
	texts := map[string]string{}
	for _, p := range problems {
		texts[p.Object] = p.Text
	}
	if texts["service blue:s"] != textSplit || !strings.Contains(texts["group blue:old"], "no VLAN of its own") || texts["group blue:web"] != "" {
		t.Errorf("told: %v", texts)
	}
	s, _ := h.Services.Get(key)
	if s == nil || s.Backends.Len() != 1 {
		t.Fatalf("the service is %+v, want one with the provider on its own network alone", s)
	}
	for k := range s.Backends.All() {
		if k.ID != "e4" {
			t.Errorf("its backend is %s", k)
		}
	}
	g := model.DefaultGlobal()
	c.SetGlobal(g)
	for _, name := range []model.GroupName{"web", "db"} {
		c.DeleteGroup(model.GroupKey{Tenant: "blue", Name: name})
	}
	if _, problems = c.Compile(2); slices.ContainsFunc(problems, func(p Problem) bool { return p.Text == textSplit || strings.Contains(p.Text, "VLAN of its own") }) {
		t.Errorf("still told: %v", problems)
	}
}
