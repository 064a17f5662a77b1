package netctl

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

var bgps = register(kindOf((*api.Client).Bgps, columns[api.Bgp]{
	header:     []string{"HostName", "RouterIP", "AS", "Neighbor", "NeighborAS"},
	row:        func(b api.Bgp) []string { return []string{b.Hostname, b.RouterIP, b.AS, b.Neighbor, b.NeighborAS} },
	wideHeader: []string{"RouterIP6", "More neighbors", "Max prefixes", "Default route", "BFD"},
	wideRow: func(b api.Bgp) []string {
		return []string{b.RouterIP6, b.Neighbors, number(cmp.Or(b.MaxPrefixes, 10000)), strconv.FormatBool(b.DefaultRoute), cmp.Or(b.BFD, "on")}
	},
}, objectKind{
	order: 110, name: "Bgp", aliases: []string{"bgps"}, arg: "HOST",
	keyFields: []string{"hostname"},
	noun:      "bgp", example: "host1",
}))

type bgpCreateOptions struct {
	common
	bgp api.Bgp
}

func newBgp(base common) *command {
	return &command{
		name:  "bgp",
		short: "BGP: how a host announces its addresses to a router of the network.",
		examples: []string{
			"netctl bgp create --router-ip 50.1.1.1/24 --as 65002 --neighbor 50.1.1.200 --neighbor-as 500 host1",
			"netctl bgp create --router-ip 50.1.1.1/24 --as 65002 --neighbor 50.1.1.200 --neighbor-as 500 --neighbors 50.1.1.201@500 host1",
			"netctl bgp inspect host1",
			"netctl bgp ls",
			"netctl bgp rm host1",
		},
		subs: []*command{
			newBgpCreate(base),
			newInspect(base, bgps, "Show a host's BGP settings and sessions"),
			newList(base, bgps, "List the hosts' BGP settings"),
			newRemove(base, bgps, "Delete a host's BGP settings"),
		},
	}
}

func newBgpCreate(base common) *command {
	o := &bgpCreateOptions{common: base}
	b := &o.bgp
	c := &command{
		name:     "create",
		fills:    b,
		short:    "Create the BGP settings of a host, or change them: what no flag gives stays, but for neighbors",
		examples: []string{"netctl bgp create --router-ip 50.1.1.1/24 --as 65002 --neighbor 50.1.1.200 --neighbor-as 500 host1"},
		args:     []string{"HOST"},
	}
	c.flags.String(&b.RouterIP, "router-ip", "CIDR", "")
	c.flags.String(&b.AS, "as", "NUMBER", "")
	c.flags.String(&b.NeighborAS, "neighbor-as", "NUMBER", "")
	c.flags.String(&b.Neighbor, "neighbor", "ADDRESS", "not needed with --neighbors")
	c.flags.String(&b.RouterIP6, "router-ip6", "CIDR", "")
	c.flags.String(&b.Neighbors, "neighbors", "LIST", "")
	c.flags.String(&b.Password, "password", "TEXT", "")
	c.flags.Int(&b.MaxPrefixes, "max-prefixes", "NUMBER", "")
	c.flags.Bool(&b.DefaultRoute, "default-route", "")
	c.flags.String(&b.BFD, "bfd", "on|off", "")
	o.keepRest(c, "neighbor", "neighbors", "neighbor-as")
	writeFlags(&c.flags, &o.common, "json, j", "print the settings as stored, as JSON")
	c.run = bindRun(o, runBgpCreate, []*string{&b.Hostname})
	return c
}

func runBgpCreate(ctx context.Context, o *bgpCreateOptions) error {
	if first, _, _ := strings.Cut(o.bgp.Neighbors, ","); first != "" && o.bgp.Neighbor == "" {
		// Without 1.x' one router, whose AS number settings have to have.
		_, as, told := strings.Cut(first, "@")
		if o.bgp.NeighborAS == "" && !told {
			return flags.Usagef("--neighbors %q: routers are given as ADDRESS@AS", first)
		} else if o.bgp.NeighborAS == "" {
			o.bgp.NeighborAS = as
		}
	} else if o.bgp.RouterIP != "" && o.bgp.Neighbor == "" {
		return flags.Usagef("--neighbor is missing, or --neighbors")
	}
	for _, f := range []struct{ name, value string }{
		{"router-ip", o.bgp.RouterIP}, {"as", o.bgp.AS}, {"neighbor-as", o.bgp.NeighborAS},
	} {
		if f.value == "" {
			return flags.Usagef("--%s is missing", f.name)
		}
	}
	return put(ctx, &o.common, bgps, o.bgp.Hostname, o.bgp)
}
