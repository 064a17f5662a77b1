package conformance

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// SharedTopology is two hosts and four tenants in forwarding mode routing: infra, of
// whose networks blue reaches the VXLAN network dns and the VLAN network log, and red
// dns alone; and alone, which shares nothing and has blue's addresses. Each network has
// a group ("gdns"), with an endpoint on each host named tenant, network and host number
// ("infra-dns1").
func SharedTopology() Topology {
	t := StandardTopology()
	t.Global.FwdMode = model.FwdRouting
	t.Networks, t.Groups, t.Endpoints, t.Identities = nil, nil, nil, nil
	dns, log := model.NetworkKey{Tenant: "infra", Name: "dns"}, model.NetworkKey{Tenant: "infra", Name: "log"}
	t.Tenants = []model.Tenant{
		{Name: "alone", Router: 1},
		{Name: "blue", Router: 2, Shared: []model.NetworkKey{dns, log}},
		{Name: "infra", Router: 3, Clients: []model.TenantName{"blue", "red"}},
		{Name: "red", Router: 4, Shared: []model.NetworkKey{dns}},
	}
	for i, x := range []struct {
		tenant model.TenantName
		name   string
		encap  model.Encap
		subnet int
	}{
		{"infra", "dns", model.EncapVXLAN, 1},
		{"infra", "log", model.EncapVLAN, 2},
		{"infra", "inner", model.EncapVXLAN, 3},
		{"blue", "b", model.EncapVXLAN, 4},
		{"blue", "v", model.EncapVLAN, 5},
		{"red", "r", model.EncapVXLAN, 6},
		{"alone", "a", model.EncapVXLAN, 4},
	} {
		n := t.addNetwork(x.tenant, model.NetworkName(x.name), x.encap, uint32(110+i), x.subnet)
		t.Networks[i].ID += 10 // beside those of RoutedTopology
		group := model.GroupName("g" + x.name)
		id := t.intern(n, group)
		t.Groups = append(t.Groups, model.Group{Key: model.GroupKey{Tenant: x.tenant, Name: group}, Network: n.Key.Name, ID: id})
		for host := 1; host <= 2; host++ {
			t.addEndpoint(n, group, fmt.Sprintf("%s-%s%d", x.tenant, x.name, host), host, id)
		}
	}
	return t
}

// SharedCases are policies on SharedTopology: none, which denies all connections from other
// tenants, and policies that allow as much as possible.
func SharedCases(top Topology) []Case {
	open := Case{Name: "open", Attach: map[model.GroupKey][]model.PolicyName{}}
	allow := func(tenant model.TenantName, group model.GroupName, rules ...model.Rule) {
		p := model.PolicyKey{Tenant: tenant, Name: "p-" + model.PolicyName(group)}
		open.Policies = append(open.Policies, model.ContivPolicy{Key: p})
		open.Attach[model.GroupKey{Tenant: tenant, Name: group}] = []model.PolicyName{p.Name}
		for i, r := range rules {
			r.Key = model.RuleKey{Tenant: tenant, Policy: p.Name, Rule: model.RuleID(strconv.Itoa(i + 1))}
			r.Direction, r.Priority, r.Action, r.Protocol = model.In, 50, model.Allow, model.AnyProtocol
			open.Rules = append(open.Rules, r)
		}
	}
	b := top.Network(model.NetworkKey{Tenant: "blue", Name: "b"})
	allow("infra", "gdns", model.Rule{})
	allow("infra", "glog", model.Rule{Addr: b.Subnet}, model.Rule{Addr: b.Subnet6})
	allow("infra", "ginner", model.Rule{})
	allow("blue", "gb", model.Rule{})
	allow("red", "gr", model.Rule{})
	return []Case{{Name: "no policy"}, open}
}

// testShared: tenants reach what is shared with them where a rule lets them in, and
// nothing else of each other, also when another host brings it.
func testShared(t *testing.T, h Harness) {
	t.Helper()
	top := SharedTopology()
	b, w := routing(t, h, top, true)
	var pairs [][2]model.Endpoint
	for _, from := range top.Endpoints {
		for _, to := range top.Endpoints {
			if from.Key.Network != to.Key.Network && (from.Host == "h1" || to.Host == "h1") {
				pairs = append(pairs, [2]model.Endpoint{from, to})
			}
		}
	}
	sport := uint16(26000)
	for _, c := range SharedCases(top) {
		if err := w.Switch(c); err != nil {
			t.Fatal(err)
		}
		b.apply(t, w.Desired["h1"])
		for i, x := range exchangesBetween(top, pairs, &sport) {
			if h.Slow && i/2%3 != 0 {
				continue
			}
			b.compare(t, c.Name+": "+x.name, x.packet)
		}
	}
	if !h.Egress {
		return
	}
	comp := NewCompiler(top, "h1")
	WithEgress(top, comp, h.Egress6)
	pic, _ := comp.Compile(1)
	b.apply(t, pic)
	for _, e := range top.Endpoints {
		if e.Host != "h1" {
			continue
		}
		sport++
		p := routed(top, e, e, model.ProtoUDP, false, sport, 80)
		p.DstMAC, p.Dst = desired.RouterMAC, Outside
		b.compare(t, e.Key.String()+" to the outside", p)
		port := portOf(pic, e)
		b.compare(t, "the host to "+e.Key.String(), reference.Packet{Host: true, Src: pic.HostNAT.Addr, Dst: port.Private, Proto: model.ProtoUDP, SrcPort: sport, DstPort: 80})
	}
}
