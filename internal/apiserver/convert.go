package apiserver

import (
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// globalName is the key of the only global object.
const globalName = "global"

// globalFromAPI parses the cluster's settings. Empty fields are zero in the
// result: "leave as it is".
func globalFromAPI(o api.Global) (g model.Global, err error) {
	if o.Name != globalName {
		return g, model.InvalidField("name", o.Name, "must be "+globalName)
	}
	if g.Infra, err = optional(o.NetworkInfraType, model.ParseInfraType); err != nil {
		return g, err
	}
	if g.FwdMode, err = optional(o.FwdMode, model.ParseFwdMode); err != nil {
		return g, err
	}
	if g.ArpMode, err = optional(o.ArpMode, model.ParseArpMode); err != nil {
		return g, err
	}
	if g.VLANs, err = optional(o.Vlans, func(s string) (model.TagRange, error) {
		return model.ParseTagRange("vlans", s, model.MaxVLAN)
	}); err != nil {
		return g, err
	}
	if g.VXLANs, err = optional(o.Vxlans, func(s string) (model.TagRange, error) {
		return model.ParseTagRange("vxlans", s, model.MaxVNI)
	}); err != nil {
		return g, err
	}
	g.PvtSubnet, err = optional(o.PvtSubnet, model.ParsePvtSubnet)
	return g, err
}

// optional parses s unless it is empty, which gives the zero value.
func optional[T any](s string, parse func(string) (T, error)) (T, error) {
	if s == "" {
		var zero T
		return zero, nil
	}
	return parse(s)
}

func globalToAPI(g model.Global) api.Global {
	return api.Global{
		Key:              globalName,
		ArpMode:          string(g.ArpMode),
		FwdMode:          string(g.FwdMode),
		Name:             globalName,
		NetworkInfraType: string(g.Infra),
		PvtSubnet:        g.PvtSubnet.String(),
		Vlans:            g.VLANs.String(),
		Vxlans:           g.VXLANs.String(),
	}
}

func tenantFromAPI(o api.Tenant) (t model.Tenant, err error) {
	if t.Name, err = model.ParseTenantName(o.TenantName); err != nil {
		return t, err
	}
	t.DefaultNetwork, err = optional(o.DefaultNetwork, func(s string) (model.NetworkName, error) {
		n, err := model.ParseNetworkName(s)
		return n, renamed(err, "defaultNetwork")
	})
	return t, err
}

func tenantToAPI(t model.Tenant) api.Tenant {
	return api.Tenant{Key: string(t.Name), TenantName: string(t.Name), DefaultNetwork: string(t.DefaultNetwork)}
}

// renamed gives a field error the name that the field has in the request.
func renamed(err error, field string) error {
	if f, ok := err.(*model.FieldError); ok { //nolint:errorlint // parsers of model return it bare
		return &model.FieldError{Field: field, Value: f.Value, Want: f.Want}
	}
	return err
}

func networkFromAPI(o api.Network) (n model.Network, err error) {
	if n.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return n, err
	}
	if n.Key.Name, err = model.ParseNetworkName(o.NetworkName); err != nil {
		return n, err
	}
	if n.Type, err = model.ParseNetworkType(o.NwType); err != nil {
		return n, err
	}
	if n.Encap, err = model.ParseEncap(o.Encap); err != nil {
		return n, err
	}
	if n.ReqTag, err = model.ParseReqTag(n.Encap, int64(o.PktTag)); err != nil {
		return n, err
	}
	if o.Subnet != "" {
		n.RawSubnet = o.Subnet
		if n.Subnet, n.Range, err = model.ParseSubnet4("subnet", o.Subnet); err != nil {
			return n, err
		}
	}
	if n.Gateway, err = optional(o.Gateway, func(s string) (netip.Addr, error) {
		return model.ParseAddr4("gateway", s)
	}); err != nil {
		return n, err
	}
	if o.IPv6Subnet != "" {
		n.RawSubnet6 = o.IPv6Subnet
		if n.Subnet6, err = model.ParseSubnet6("ipv6Subnet", o.IPv6Subnet); err != nil {
			return n, err
		}
	}
	if n.Gateway6, err = optional(o.IPv6Gateway, func(s string) (netip.Addr, error) {
		return model.ParseAddr6("ipv6Gateway", s)
	}); err != nil {
		return n, err
	}
	n.CfgdTag = o.CfgdTag
	return n, n.Validate()
}

func networkToAPI(n model.Network) api.Network {
	o := api.Network{
		Key:         n.Key.String(),
		CfgdTag:     n.CfgdTag,
		Encap:       string(n.Encap),
		Gateway:     addrText(n.Gateway),
		IPv6Gateway: addrText(n.Gateway6),
		IPv6Subnet:  n.RawSubnet6,
		NetworkName: string(n.Key.Name),
		NwType:      string(n.Type),
		PktTag:      int(n.ReqTag),
		Subnet:      n.RawSubnet,
		TenantName:  string(n.Key.Tenant),
	}
	if o.Subnet == "" {
		o.Subnet = model.FormatSubnet4(n.Subnet, n.Range)
	}
	if o.IPv6Subnet == "" && n.Subnet6.IsValid() {
		o.IPv6Subnet = n.Subnet6.String()
	}
	o.Links.Tenant = tenantLink(n.Key.Tenant)
	return o
}

// addrText is an address's text, empty for none.
func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func groupFromAPI(o api.EndpointGroup) (g model.Group, err error) {
	if g.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return g, err
	}
	if g.Key.Name, err = model.ParseGroupName(o.GroupName); err != nil {
		return g, err
	}
	if g.Network, err = model.ParseNetworkName(o.NetworkName); err != nil {
		return g, err
	}
	for _, p := range o.Policies {
		name, err := model.ParsePolicyName(p)
		if err != nil {
			return g, renamed(err, "policies")
		}
		g.Policies = append(g.Policies, name)
	}
	if g.Pool, err = optional(o.IPPool, func(s string) (model.AddrRange, error) {
		return model.ParseAddrRange("ipPool", s)
	}); err != nil {
		return g, err
	}
	g.NetProfile, g.ExtContracts, g.CfgdTag = o.NetProfile, o.ExtContractsGrps, o.CfgdTag
	return g, g.Validate()
}

func groupToAPI(g model.Group) api.EndpointGroup {
	o := api.EndpointGroup{
		Key:              g.Key.String(),
		CfgdTag:          g.CfgdTag,
		ExtContractsGrps: g.ExtContracts,
		GroupName:        string(g.Key.Name),
		IPPool:           g.Pool.String(),
		NetProfile:       g.NetProfile,
		NetworkName:      string(g.Network),
		TenantName:       string(g.Key.Tenant),
	}
	for _, p := range g.Policies {
		o.Policies = append(o.Policies, string(p))
		addLink(&o.LinkSets.Policies, "policy", model.PolicyKey{Tenant: g.Key.Tenant, Name: p}.String())
	}
	for _, name := range g.ExtContracts {
		addLink(&o.LinkSets.ExtContractsGrps, "extContractsGroup", model.ExtContractsKey{Tenant: g.Key.Tenant, Name: name}.String())
	}
	if g.NetProfile != "" {
		o.Links.NetProfile = api.Link{Type: "netprofile", Key: model.NetProfileKey{Tenant: g.Key.Tenant, Name: g.NetProfile}.String()}
	}
	o.Links.Network = api.Link{Type: "network", Key: g.NetworkKey().String()}
	o.Links.Tenant = tenantLink(g.Key.Tenant)
	return o
}

func policyFromAPI(o api.Policy) (p model.ContivPolicy, err error) {
	if p.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return p, err
	}
	p.Key.Name, err = model.ParsePolicyName(o.PolicyName)
	return p, err
}

func policyToAPI(p model.ContivPolicy) api.Policy {
	return api.Policy{
		Key:        p.Key.String(),
		PolicyName: string(p.Key.Name),
		TenantName: string(p.Key.Tenant),
		Links:      api.PolicyLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
}

func ruleFromAPI(o api.Rule) (r model.Rule, err error) {
	if r.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return r, err
	}
	if r.Key.Policy, err = model.ParsePolicyName(o.PolicyName); err != nil {
		return r, err
	}
	if r.Key.Rule, err = model.ParseRuleID(o.RuleID); err != nil {
		return r, err
	}
	if r.Direction, err = model.ParseDirection(o.Direction); err != nil {
		return r, err
	}
	if r.Priority, err = model.ParsePriority(o.Priority); err != nil {
		return r, err
	}
	if r.Action, err = model.ParseAction(o.Action); err != nil {
		return r, err
	}
	if r.Protocol, err = model.ParseProtocol(o.Protocol); err != nil {
		return r, err
	}
	if r.Port, err = model.ParsePort(o.Port); err != nil {
		return r, err
	}
	group, network, addr, side := o.FromEndpointGroup, o.FromNetwork, o.FromIPAddress, "from"
	otherSide := []struct{ field, value string }{{"toEndpointGroup", o.ToEndpointGroup}, {"toNetwork", o.ToNetwork}, {"toIpAddress", o.ToIPAddress}}
	if r.Direction == model.Out {
		otherSide = []struct{ field, value string }{{"fromEndpointGroup", group}, {"fromNetwork", network}, {"fromIpAddress", addr}}
		group, network, addr, side = o.ToEndpointGroup, o.ToNetwork, o.ToIPAddress, "to"
	}
	for _, f := range otherSide {
		if f.value != "" {
			return r, model.InvalidField(f.field, f.value, "must be empty in a rule of direction "+string(r.Direction))
		}
	}
	if r.Group, err = optional(group, model.ParseGroupName); err != nil {
		return r, renamed(err, side+"EndpointGroup")
	}
	if r.Network, err = optional(network, model.ParseNetworkName); err != nil {
		return r, renamed(err, side+"Network")
	}
	if addr != "" {
		r.RawAddr = addr
		if r.Addr, err = model.ParsePeerAddr(side+"IpAddress", addr); err != nil {
			return r, err
		}
	}
	return r, r.Validate()
}

func ruleToAPI(r model.Rule) api.Rule {
	o := api.Rule{
		Key:        r.Key.String(),
		Action:     string(r.Action),
		Direction:  string(r.Direction),
		PolicyName: string(r.Key.Policy),
		Port:       int(r.Port),
		Priority:   r.Priority,
		Protocol:   r.Protocol.String(),
		RuleID:     string(r.Key.Rule),
		TenantName: string(r.Key.Tenant),
	}
	addr := r.RawAddr
	if addr == "" && r.Addr.IsValid() {
		addr = r.Addr.String()
	}
	if r.Direction == model.Out {
		o.ToEndpointGroup, o.ToNetwork, o.ToIPAddress = string(r.Group), string(r.Network), addr
	} else {
		o.FromEndpointGroup, o.FromNetwork, o.FromIPAddress = string(r.Group), string(r.Network), addr
	}
	addLink(&o.LinkSets.Policies, "policy", r.Key.PolicyKey().String())
	if r.Group != "" {
		o.Links.MatchEndpointGroup = api.Link{Type: "endpointGroup", Key: model.GroupKey{Tenant: r.Key.Tenant, Name: r.Group}.String()}
	}
	return o
}

func tenantLink(t model.TenantName) api.Link { return api.Link{Type: "tenant", Key: string(t)} }

func addLink(set *api.LinkSet, kind, key string) {
	if *set == nil {
		*set = make(api.LinkSet)
	}
	(*set)[key] = api.Link{Type: kind, Key: key}
}

// networkID is a network's name in 1.x's runtime interface: network.tenant.
func networkID(k model.NetworkKey) string { return string(k.Name) + "." + string(k.Tenant) }

// groupID is a group's key there: group:tenant.
func groupID(t model.TenantName, g model.GroupName) string {
	if g == "" {
		return ""
	}
	return string(g) + ":" + string(t)
}

// labelText writes labels as 1.x did, the way Go prints a map: "map[a:1 b:2]".
func labelText(labels map[string]string) string {
	var b strings.Builder
	b.WriteString("map[")
	for i, k := range sortedKeys(labels) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(k + ":" + labels[k])
	}
	b.WriteByte(']')
	return b.String()
}
