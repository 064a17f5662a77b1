package apiserver

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

func endpointOper(v *control.View, e model.Endpoint) api.EndpointOper {
	o := api.EndpointOper{
		ContainerID:      e.Container,
		ContainerName:    e.Name,
		EndpointGroupKey: groupID(e.Key.Network.Tenant, e.Group),
		EndpointID:       string(e.Key.ID),
		HomingHost:       string(e.Host),
		IntfName:         compile.IfName(e.Key),
		IPAddress:        []string{addrText(e.IPv4), addrText(e.IPv6)},
		Labels:           labelText(e.Labels),
		LabelMap:         e.Labels,
		ChosenMac:        chosenMAC(e),
		MacAddress:       e.MAC.String(),
		Network:          networkID(e.Key.Network),
		ServiceName:      string(e.Group),
	}
	o.EndpointGroupID = groupNumber(v, e)
	if h, ok := v.Host(e.Host); ok {
		o.VtepIP = addrText(h.VTEP)
	}
	return o
}

// chosenMAC is the MAC address that somebody asked for; empty when it is made of
// the address.
func chosenMAC(e model.Endpoint) string {
	if e.MAC.Derived() {
		return ""
	}
	return e.MAC.String()
}

// groupNumber is the id of an endpoint's group, 0 for none. A view that does
// not have the group yet gives way to the endpoint's identity, which is the
// same number unless its labels count.
func groupNumber(v *control.View, e model.Endpoint) int {
	if e.Group == "" {
		return 0
	}
	if g, ok := v.Group(model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}); ok {
		return int(g.ID)
	}
	return int(e.Identity)
}

func endpointOpers(v *control.View, es []model.Endpoint) []api.EndpointOper {
	var out []api.EndpointOper
	for _, e := range es {
		out = append(out, endpointOper(v, e))
	}
	return out
}

func endpointConfig(v *control.View, e model.Endpoint) api.EndpointConfig {
	o := api.EndpointConfig{
		ID:               networkID(e.Key.Network) + "-" + string(e.Key.ID),
		NetID:            networkID(e.Key.Network),
		EndpointID:       string(e.Key.ID),
		ServiceName:      string(e.Group),
		EndpointGroupKey: groupID(e.Key.Network.Tenant, e.Group),
		IPAddress:        addrText(e.IPv4),
		IPv6Address:      addrText(e.IPv6),
		MacAddress:       e.MAC.String(),
		HomingHost:       string(e.Host),
		IntfName:         compile.IfName(e.Key),
		Labels:           e.Labels,
		ContainerID:      e.Container,
		EPCommonName:     e.Name,
	}
	o.EndpointGroupID = groupNumber(v, e)
	if h, ok := v.Host(e.Host); ok {
		o.VtepIP = addrText(h.VTEP)
	}
	return o
}

// networkOper builds a network's operational state.
func networkOper(v *control.View, n model.Network) api.NetworkOper {
	es := v.EndpointsOfNetwork(n.Key)
	o := api.NetworkOper{
		Endpoints:    endpointOpers(v, es),
		NetworkTag:   n.CfgdTag,
		NumEndpoints: len(es),
		PktTag:       int(n.Tag),
	}
	if o.NetworkTag == "" {
		o.NetworkTag = networkID(n.Key)
	}
	if n.Encap == model.EncapVXLAN {
		o.ExternalPktTag = int(n.Tag)
	}
	subnet, gateway, usable := n.Subnet, n.Gateway, n.Range
	if !subnet.IsValid() {
		subnet, gateway = n.Subnet6, n.Gateway6
	}
	if !usable.IsValid() {
		usable = model.HostRange(subnet)
	}
	var held []model.AddrRange
	for _, a := range v.Addresses(n.Key) {
		if subnet.Contains(a) {
			o.AllocatedAddressesCount++
			held = append(held, model.AddrRange{First: a, Last: a})
		}
	}
	if gateway.IsValid() {
		held = append(held, model.AddrRange{First: gateway, Last: gateway})
	}
	for _, g := range v.GroupsOfNetwork(n.Key) {
		if g.Pool.IsValid() {
			held = append(held, g.Pool)
		}
	}
	o.AllocatedIPAddresses, o.AvailableIPAddresses = rangeTexts(usable, held)
	return o
}

// groupOper builds a group's operational state.
func groupOper(v *control.View, g model.Group) api.EndpointGroupOper {
	es := v.EndpointsOfGroup(g.Key)
	o := api.EndpointGroupOper{
		Endpoints:    endpointOpers(v, es),
		GroupTag:     g.CfgdTag,
		NumEndpoints: len(es),
	}
	if o.GroupTag == "" {
		o.GroupTag = string(g.Key.Name) + "." + string(g.Key.Tenant)
	}
	n, ok := v.Network(g.NetworkKey())
	if !ok {
		return o
	}
	o.PktTag = int(n.Tag)
	if n.Encap == model.EncapVXLAN {
		o.ExternalPktTag = int(n.Tag)
	}
	if g.Pool.IsValid() {
		var held []model.AddrRange
		for _, a := range v.Addresses(n.Key) {
			held = append(held, model.AddrRange{First: a, Last: a})
		}
		o.AllocatedIPAddresses, o.AvailableIPAddresses = rangeTexts(g.Pool, held)
	}
	return o
}

func policyOper(v *control.View, p model.ContivPolicy) api.PolicyOper {
	var o api.PolicyOper
	for _, g := range v.GroupsOfPolicy(p.Key) {
		o.Endpoints = append(o.Endpoints, endpointOpers(v, v.EndpointsOfGroup(g.Key))...)
	}
	o.NumEndpoints = len(o.Endpoints)
	return o
}

// tenantOper builds a tenant's operational state; what it nests carries no
// tags, as in 1.x.
func tenantOper(v *control.View, t model.TenantName) api.TenantOper {
	var o api.TenantOper
	for _, g := range v.Groups(t) {
		oper := groupOper(v, g)
		oper.GroupTag = ""
		o.EndpointGroups = append(o.EndpointGroups, oper)
	}
	for _, n := range v.Networks(t) {
		oper := networkOper(v, n)
		oper.NetworkTag = ""
		o.TotalEndpoints += oper.NumEndpoints
		o.Networks = append(o.Networks, oper)
	}
	for _, x := range v.Services(t) {
		o.Servicelbs = append(o.Servicelbs, serviceOper(v, x))
	}
	o.TotalServicelbs, o.TotalNetprofiles, o.TotalAppProfiles = len(o.Servicelbs), len(v.NetProfiles(t)), len(v.AppProfiles(t))
	o.TotalEPGs, o.TotalNetworks, o.TotalPolicies = len(o.EndpointGroups), len(o.Networks), len(v.Policies(t))
	return o
}

func globalOper(v *control.View, mode string) api.GlobalOper {
	g, _ := v.Global()
	return api.GlobalOper{
		ClusterMode: mode,
		// As 1.x answered: the number before the range; nobody counts from it.
		FreeVXLANsStart: max(int(g.VXLANs.Lo)-1, 0),
		NumNetworks:     len(v.Networks("")),
		VlansInUse:      v.TagsInUse(model.EncapVLAN),
		VxlansInUse:     v.TagsInUse(model.EncapVXLAN),
	}
}

// rangeTexts writes which addresses of usable are held and which are free, as
// comma-separated ranges. The held ranges may overlap and reach beyond usable.
func rangeTexts(usable model.AddrRange, held []model.AddrRange) (allocated, available string) {
	var in, out []model.AddrRange
	slices.SortFunc(held, func(a, b model.AddrRange) int { return a.First.Compare(b.First) })
	next, more := usable.First, usable.IsValid() // first address not yet classified
	for _, h := range held {
		first, last := h.First, h.Last
		if !more || last.Less(next) || usable.Last.Less(first) {
			continue
		}
		if first.Less(next) {
			first = next
		}
		if usable.Last.Less(last) {
			last = usable.Last
		}
		if next.Less(first) {
			out = append(out, model.AddrRange{First: next, Last: first.Prev()})
		}
		if n := len(in); n > 0 && in[n-1].Last.Next() == first {
			in[n-1].Last = last
		} else {
			in = append(in, model.AddrRange{First: first, Last: last})
		}
		next, more = last.Next(), last.Less(usable.Last)
	}
	if more {
		out = append(out, model.AddrRange{First: next, Last: usable.Last})
	}
	return joinRanges(in), joinRanges(out)
}

func joinRanges(rs []model.AddrRange) string {
	var parts []string
	for _, r := range rs {
		if r.First == r.Last {
			parts = append(parts, r.First.String())
		} else {
			parts = append(parts, r.String())
		}
	}
	return strings.Join(parts, ", ")
}

// sortedKeys returns a map's keys in order.
func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
