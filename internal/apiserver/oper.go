package apiserver

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/model"
)

func endpointOper(v View, e model.Endpoint) api.EndpointOper {
	o := api.EndpointOper{
		ContainerID:      e.Container,
		ContainerName:    e.Name,
		EndpointGroupKey: groupID(e.Key.Network.Tenant, e.Group),
		EndpointID:       string(e.Key.ID),
		HomingHost:       string(e.Host),
		IntfName:         compile.IfName(e.Key),
		IPAddress:        []string{addrText(e.IPv4), addrText(e.IPv6)},
		Labels:           labelText(e.Labels),
		MacAddress:       e.MAC.String(),
		Network:          networkID(e.Key.Network),
		ServiceName:      string(e.Group),
	}
	if g, ok := v.Group(model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}); ok {
		o.EndpointGroupID = int(g.ID)
	}
	if h, ok := v.Host(e.Host); ok {
		o.VtepIP = addrText(h.VTEP)
	}
	return o
}

func endpointOpers(v View, es []model.Endpoint) []api.EndpointOper {
	var out []api.EndpointOper
	for _, e := range es {
		out = append(out, endpointOper(v, e))
	}
	return out
}

func endpointConfig(v View, e model.Endpoint) api.EndpointConfig {
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
	if g, ok := v.Group(model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}); ok {
		o.EndpointGroupID = int(g.ID)
	}
	if h, ok := v.Host(e.Host); ok {
		o.VtepIP = addrText(h.VTEP)
	}
	return o
}

// networkOper builds a network's operational state.
func networkOper(v View, n model.Network) api.NetworkOper {
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
	for _, g := range v.Groups(n.Key.Tenant) {
		if g.Network == n.Key.Name && g.Pool.IsValid() {
			held = append(held, g.Pool)
		}
	}
	o.AllocatedIPAddresses, o.AvailableIPAddresses = rangeTexts(usable, held)
	return o
}

// groupOper builds a group's operational state.
func groupOper(v View, g model.Group) api.EndpointGroupOper {
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

func policyOper(v View, p model.ContivPolicy) api.PolicyOper {
	var o api.PolicyOper
	for _, g := range v.Groups(p.Key.Tenant) {
		if slices.Contains(g.Policies, p.Key.Name) {
			o.Endpoints = append(o.Endpoints, endpointOpers(v, v.EndpointsOfGroup(g.Key))...)
		}
	}
	o.NumEndpoints = len(o.Endpoints)
	return o
}

// tenantOper builds a tenant's operational state; what it nests carries no
// tags, as in 1.x.
func tenantOper(v View, t model.TenantName) api.TenantOper {
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
	o.TotalEPGs, o.TotalNetworks, o.TotalPolicies = len(o.EndpointGroups), len(o.Networks), len(v.Policies(t))
	return o
}

func globalOper(v View, mode string) api.GlobalOper {
	o := api.GlobalOper{ClusterMode: mode}
	var vlans, vxlans []uint32
	for _, n := range v.Networks("") {
		o.NumNetworks++
		if n.Encap == model.EncapVXLAN {
			vxlans = append(vxlans, n.Tag)
		} else {
			vlans = append(vlans, n.Tag)
		}
	}
	o.VlansInUse, o.VxlansInUse = tagTexts(vlans), tagTexts(vxlans)
	return o
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

func tagTexts(tags []uint32) string {
	slices.Sort(tags)
	var parts []string
	for i := 0; i < len(tags); {
		j := i
		for j+1 < len(tags) && tags[j+1] <= tags[j]+1 {
			j++
		}
		r := model.TagRange{Lo: tags[i], Hi: tags[j]}
		if r.Lo == r.Hi {
			parts = append(parts, strings.SplitN(r.String(), "-", 2)[0])
		} else {
			parts = append(parts, r.String())
		}
		i = j + 1
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
