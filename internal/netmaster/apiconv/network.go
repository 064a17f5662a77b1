package apiconv

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Network parses a network.
func Network(o api.Network) (n model.Network, err error) {
	if err = checkOwner(o.Owner); err != nil {
		return n, err
	}
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
	if n.Gateway, err = Optional(o.Gateway, func(s string) (netip.Addr, error) {
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
	if n.Gateway6, err = Optional(o.IPv6Gateway, func(s string) (netip.Addr, error) {
		return model.ParseAddr6("ipv6Gateway", s)
	}); err != nil {
		return n, err
	}
	n.CfgdTag, n.Routed = o.CfgdTag, o.Native
	return n, nil
}
