package cli

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

var bgps = kind[api.Bgp, api.BgpOper]{
	noun: "bgp", arg: "HOST", example: "host1", collection: (*api.Client).Bgps,
}

var bgpList = listing[api.Bgp, api.BgpOper]{
	kind:   bgps,
	name:   func(b api.Bgp) string { return b.Hostname },
	header: []string{"HostName", "RouterIP", "AS", "Neighbor", "NeighborAS"},
	row:    func(b api.Bgp) []string { return []string{b.Hostname, b.RouterIP, b.AS, b.Neighbor, b.NeighborAS} },
}

var _ = register(kindOf(bgpList, objectKind{
	order: 110, name: "Bgp", aliases: []string{"bgps"},
	keyFields: []string{"hostname"},
	command:   newBgp,
}))

// The sentence is model.NoEffect's, copied since netctl does not link internal/model;
// TestNotes compares the two.
const noteBgp = "BGP settings are kept and have no effect yet: hosts run no router"

type bgpCreateOptions struct {
	common
	bgp api.Bgp
}

func newBgp(f *factory) *command {
	return &command{
		name:  "bgp",
		short: "BGP: how a host tells a router of the network which addresses it has.",
		note:  noteBgp,
		examples: []string{
			"netctl bgp create --router-ip 50.1.1.1/24 --as 65002 --neighbor 50.1.1.200 --neighbor-as 500 host1",
			"netctl bgp ls",
			"netctl bgp rm host1",
		},
		subs: []*command{
			newBgpCreate(f, nil),
			newInspect(f, bgps, "Show a host's BGP settings and sessions", nil),
			newList(f, bgpList, "List the hosts' BGP settings", nil),
			newRemove(f, bgps, "Delete a host's BGP settings", nil),
		},
	}
}

func newBgpCreate(f *factory, run func(context.Context, *bgpCreateOptions) error) *command {
	o := &bgpCreateOptions{common: newCommon(f)}
	b := &o.bgp
	c := &command{
		name:     "create",
		fills:    b,
		short:    "Set the BGP settings of a host",
		note:     noteBgp,
		examples: []string{"netctl bgp create --router-ip 50.1.1.1/24 --as 65002 --neighbor 50.1.1.200 --neighbor-as 500 host1"},
		args:     []string{"HOST"},
	}
	c.flags.stringVar(&b.RouterIP, "router-ip", "CIDR", "address of the host on the router's network, with prefix length")
	c.flags.stringVar(&b.AS, "as", "NUMBER", "AS number of the host")
	c.flags.stringVar(&b.NeighborAS, "neighbor-as", "NUMBER", "AS number of the router")
	c.flags.stringVar(&b.Neighbor, "neighbor", "ADDRESS", "address of the router")
	o.changeFlags(&c.flags, "json, j", "print the settings as stored, as JSON")
	c.run = bindRun(o, orDefault(run, runBgpCreate), []*string{&b.Hostname})
	return c
}

func runBgpCreate(ctx context.Context, o *bgpCreateOptions) error {
	for _, f := range []struct{ name, value string }{
		{"router-ip", o.bgp.RouterIP}, {"as", o.bgp.AS}, {"neighbor", o.bgp.Neighbor}, {"neighbor-as", o.bgp.NeighborAS},
	} {
		if f.value == "" {
			return usageErrorf("--%s is missing", f.name)
		}
	}
	return put(ctx, &o.common, bgps, o.bgp.Hostname, o.bgp)
}
