package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestEgressRulesUseThePeersPortNames: a rule for what goes out, to whomever, means by a port's name
// what each peer calls so, as peers come and go, and all ports of a peer without
// record if it denies or passes: it denies these.
func TestEgressRulesUseThePeersPortNames(t *testing.T) {
	network := model.NetworkKey{Tenant: "blue", Name: "n1"}
	c := New("h1")
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
	c.SetHost(model.Host{Name: "h2", VTEP: netip.MustParseAddr("192.168.0.2")})
	c.SetNetwork(model.Network{Key: network, Encap: model.EncapVXLAN, Tag: 7, ID: 7})
	const client, first = model.IdentityFirst, model.IdentityFirst + 1
	c.SetIdentity(model.IdentityRecord{ID: client, Network: network, Labels: map[string]string{"app": "client"}})
	endpoint := func(id model.Identity, host model.HostName) {
		c.SetEndpoint(model.Endpoint{
			Key: model.EndpointKey{Network: network, ID: model.EndpointID(fmt.Sprint("e", id))}, Host: host, Identity: id,
			IPv4: netip.AddrFrom4([4]byte{10, 0, 0, byte(id)}), MAC: model.MAC{2, 2, 10, 0, 0, byte(id)},
		})
	}
	endpoint(client, "h1")
	k := model.PolicyKey{Tenant: "blue", Name: "p"}
	c.SetPolicy(model.Policy{
		Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv,
		Applies: model.Selector{Tenant: "blue", MatchLabels: map[string]string{"app": "client"}},
	})
	rule := model.PolicyRule{
		Key: model.RuleKey{Tenant: "blue", Policy: "p", Rule: "1"}, Direction: model.Out, Priority: 1, Action: model.Deny,
		Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Name: "http"}, {Protocol: model.ProtoTCP, Name: "http"}, {Protocol: model.ProtoTCP, Lo: 25, Hi: 25}},
	}
	c.SetRule(rule)
	calls := func(id model.Identity, port uint16) {
		c.SetIdentity(model.IdentityRecord{ID: id, Network: network, Ports: []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: port}}})
	}
	compiled := func() (out []string) {
		t.Helper()
		pic, _ := c.Compile(1)
		for _, set := range pic.PolicySets.All() {
			for _, tier := range set.Out {
				for _, r := range tier.Rules.All() {
					if r.Ports[0].Lo == 25 {
						continue // by number: to any peer, throughout
					}
					action := ""
					if r.Action != rule.Action {
						action = string(r.Action) + " "
					}
					out = append(out, action+fmt.Sprint(r.ID, " any:", r.AnyPeer, " ", slices.Collect(r.Identities.All()), " ", r.Ports[0].Lo, "-", r.Ports[0].Hi))
				}
			}
		}
		slices.Sort(out)
		return out
	}
	const a80, a81, every = "blue:p:1 http/tcp=80 any:false ", "blue:p:1 http/tcp=81 any:false ", "blue:p:1 http/tcp=0 any:false "
	for i, step := range []struct {
		do   func()
		want []string
	}{
		{func() {}, nil},
		{func() { calls(first, 80) }, []string{a80 + "[257] 80-80"}},
		{func() { calls(first+1, 80); calls(first+2, 81) }, []string{a80 + "[257 258] 80-80", a81 + "[259] 81-81"}},
		{func() { calls(first+1, 81) }, []string{a80 + "[257] 80-80", a81 + "[258 259] 81-81"}},
		{func() { c.DeleteIdentity("blue", first) }, []string{a81 + "[258 259] 81-81"}},
		{func() { endpoint(first, "h2") }, []string{every + "[257] 0-65535", a81 + "[258 259] 81-81"}},
		{func() {
			rule.Action = model.Allow
			c.SetRule(rule)
		}, []string{a81 + "[258 259] 81-81"}},
		{func() {
			rule.Action = model.Pass
			c.SetRule(rule)
		}, []string{a81 + "[258 259] 81-81", "deny " + every + "[257] 0-65535"}},
		{func() {
			rule.Action = model.Deny
			c.SetRule(rule)
		}, []string{every + "[257] 0-65535", a81 + "[258 259] 81-81"}},
		{func() { c.DeleteEndpoint(model.EndpointKey{Network: network, ID: "e257"}) }, []string{a81 + "[258 259] 81-81"}},
		{func() {
			rule.Peers = []model.Peer{{CIDR: netip.MustParsePrefix("10.0.0.0/8")}}
			c.SetRule(rule)
		}, nil},
		{func() {
			rule.Peers = append(rule.Peers, model.Peer{Network: network})
			c.SetRule(rule)
		}, []string{a81 + "[258 259] 81-81"}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, compiled()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestIngressRulesUseTheSubjectsPortNames: who calls ports differently has a set of its own, and only where a
// policy names ports of those whom it applies to.
func TestIngressRulesUseTheSubjectsPortNames(t *testing.T) {
	network := model.NetworkKey{Tenant: "blue", Name: "n1"}
	c := New("h1")
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
	c.SetNetwork(model.Network{Key: network, Encap: model.EncapVXLAN, Tag: 7, ID: 7})
	for i := range byte(4) { // two call 80 http, one 81, one nothing
		r := model.IdentityRecord{ID: model.IdentityFirst + model.Identity(i), Network: network, Labels: map[string]string{"n": fmt.Sprint(i)}}
		if i < 3 {
			r.Ports = []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: []uint16{80, 80, 81}[i]}}
		}
		c.SetIdentity(r)
		c.SetEndpoint(model.Endpoint{
			Key: model.EndpointKey{Network: network, ID: model.EndpointID(fmt.Sprint("e", i))}, Host: "h1", Identity: r.ID,
			IPv4: netip.AddrFrom4([4]byte{10, 0, 0, i + 1}), MAC: model.MAC{2, 2, 10, 0, 0, i + 1},
		})
	}
	c.SetPolicy(model.Policy{
		Key: model.PolicyKey{Tenant: "blue", Name: "p"}, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierKubernetes,
		Applies: model.Selector{Tenant: "blue"}, Default: model.Defaults{In: model.Deny},
	})
	sets := func() map[string]int {
		t.Helper()
		pic, _ := c.Compile(1)
		out := map[string]int{}
		for _, p := range pic.Ports.All() {
			set, ok := pic.PolicySets.Get(p.Policies)
			if !ok {
				t.Fatal("a port without policies")
			}
			var rules []string
			for _, r := range set.In[0].Ordered() {
				rules = append(rules, fmt.Sprint(r.ID, r.Ports))
			}
			out[strings.Join(rules, " ")]++
		}
		return out
	}
	rule := model.PolicyRule{
		Key: model.RuleKey{Tenant: "blue", Policy: "p", Rule: "1"}, Direction: model.In, Priority: 1, Action: model.Allow,
		Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Name: "http"}},
	}
	for i, step := range []struct {
		do   func()
		want map[string]int
	}{
		{func() {}, map[string]int{"": 4}},
		{func() { c.SetRule(rule) }, map[string]int{"": 1, "blue:p:1 http/tcp=80[{tcp 80 80 }]": 2, "blue:p:1 http/tcp=81[{tcp 81 81 }]": 1}},
		{func() { c.DeleteRule(rule.Key) }, map[string]int{"": 4}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, sets()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		if pic, _ := c.Compile(1); i != 1 && pic.PolicySets.Len() != 1 {
			t.Errorf("step %d: %d sets", i, pic.PolicySets.Len())
		}
	}
}
