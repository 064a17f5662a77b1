package apiserver

import (
	"strconv"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/wire"
)

var _ = register(rest[api.Bgp, model.HostName, model.Bgp]{
	collection: "Bgps", name: "Bgp",
	key: model.ParseHostName, list: (*control.View).Bgps, get: (*control.View).Bgp,
	parse: bgpFromAPI, render: bgpToAPI,
	change: plain((*control.Controller).ChangeBgp), delete: (*control.Controller).DeleteBgp,
	oper: api.BgpOper{}, inspect: bgpOper,
	fields: map[string]field{
		"hostname":    {text: "a host that exists: " + longText, required: true},
		"routerip":    {text: "an IPv4 address with prefix length such as 50.1.1.2/24, not the network or broadcast address", required: true},
		"as":          {text: "an AS number, 1-4294967295", required: true},
		"neighbor-as": {text: "an AS number, 1-4294967295", required: true},
		"neighbor":    {text: "an IPv4 address other than the host's own; empty = none"},
	},
})

func bgpFromAPI(o api.Bgp) (b model.Bgp, err error) {
	b.Host = model.HostName(o.Hostname)
	if b.RouterIP, err = model.ParseRouterIP(o.RouterIP); err != nil {
		return b, err
	}
	if b.AS, err = model.ParseAS("as", o.AS); err != nil {
		return b, err
	}
	if b.NeighborAS, err = model.ParseAS("neighbor-as", o.NeighborAS); err != nil {
		return b, err
	}
	if b.Neighbor, err = wire.Optional(o.Neighbor, model.ParseNeighbor); err != nil {
		return b, err
	}
	return b, nil
}

func bgpToAPI(b model.Bgp) api.Bgp {
	return api.Bgp{
		Key: string(b.Host), AS: strconv.FormatUint(uint64(b.AS), 10), Hostname: string(b.Host),
		Neighbor: addrText(b.Neighbor), NeighborAS: strconv.FormatUint(uint64(b.NeighborAS), 10), RouterIP: b.RouterIP.String(),
	}
}

// bgpOper is empty: sessions are observed on the host itself, by netplugin's
// /inspect/bgp.
func bgpOper(*server, *control.View, model.Bgp) any { return api.BgpOper{} }
