package netctl

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// parallelInspects bounds how many networks `network ls` asks about at once.
const parallelInspects = 8

var networks = register(kindOf((*api.Client).Networks, columns[api.Network]{
	header: []string{
		"Tenant", "Network", "Nw Type", "Encap type", "Packet tag", "Subnet", "Gateway",
		"IPv6Subnet", "IPv6Gateway", "Cfgd Tag",
	},
	row: func(n api.Network) []string {
		return []string{
			n.TenantName, n.NetworkName, n.NwType, n.Encap, strconv.Itoa(n.PktTag),
			n.Subnet, n.Gateway, n.IPv6Subnet, n.IPv6Gateway, n.CfgdTag,
		}
	},
	wideHeader: []string{"Native", "Groups", "Services", "Owner"},
	wideRow: func(n api.Network) []string {
		native := ""
		if n.Native {
			native = "yes"
		}
		return []string{native, linked(n.LinkSets.EndpointGroups), linked(n.LinkSets.Servicelbs), n.Owner}
	},
}, objectKind{
	order: 50, name: "network", aliases: []string{"networks", "net", "nets"},
	keyFields: []string{"tenantName", "networkName"}, placeholders: []string{"NETWORK"},
	pin:     pinNetwork,
	example: "--tenant blue backend", perTenant: true, learn: learnTags,
}))

// The sentences are model.NoEffect's, copied since netctl does not link
// internal/model; TestHelpSaysWhatHasNoEffect compares them.
const (
	noteNetworkTag = "a network's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name"
)

type networkCreateOptions struct {
	common
	network api.Network
}

func newNetwork(base common) *command {
	return &command{
		name:    "network",
		aliases: []string{"net"},
		short:   "Networks: layer 2 segments with their subnets.",
		examples: []string{
			"netctl network create --tenant blue --subnet 10.1.1.0/24 --gateway 10.1.1.254 backend",
			"netctl net ls --all",
			"netctl network inspect --tenant blue backend",
		},
		subs: []*command{
			newNetworkCreate(base),
			newInspect(base, networks, "Show a network, its addresses and endpoints"),
			newList(base, networks, "List networks; Packet tag is the VLAN id or VNI in use"),
			newRemove(base, networks, "Delete a network that nothing uses any more"),
		},
	}
}

func newNetworkCreate(base common) *command {
	o := &networkCreateOptions{
		common:  base,
		network: api.Network{NwType: "data", Encap: "vxlan"},
	}
	n := &o.network
	c := &command{
		name:  "create",
		fills: n,
		short: "Create a network",
		note:  noteNetworkTag,
		examples: []string{
			"netctl network create --tenant blue --subnet 10.1.1.0/24 --gateway 10.1.1.254 backend",
			"netctl network create --encap vlan --pkt-tag 100 --subnet 10.2.0.10-10.2.0.99/16 office",
			"netctl network create --subnet 10.3.0.0/16 --subnetv6 2001:db8:3::/64 --gatewayv6 2001:db8:3::1 dual",
		},
		args: []string{"NETWORK"},
	}
	o.tenantFlag(&c.flags)
	c.flags.String(&n.NwType, "nw-type, n", "TYPE", "")
	c.flags.String(&n.Encap, "encap, e", "ENCAP", "")
	c.flags.Int(&n.PktTag, "pkt-tag, p", "TAG", "")
	c.flags.String(&n.Subnet, "subnet, s", "CIDR", "required unless --subnetv6 is given")
	c.flags.String(&n.Gateway, "gateway, g", "ADDRESS", "")
	c.flags.String(&n.IPv6Subnet, "subnetv6, s6", "CIDR", "")
	c.flags.String(&n.IPv6Gateway, "gatewayv6, g6", "ADDRESS", "")
	c.flags.Bool(&n.Native, "native", "")
	c.flags.String(&n.CfgdTag, "nw-tag, tag", "NAME", "has no effect yet")
	writeFlags(&c.flags, &o.common, "json, j", "print the network as stored, as JSON")
	c.run = bindRun(o, runNetworkCreate, []*string{&n.NetworkName})
	return c
}

func runNetworkCreate(ctx context.Context, o *networkCreateOptions) error {
	if o.network.Subnet == "" && o.network.IPv6Subnet == "" {
		return flags.Usagef("--subnet is missing (or --subnetv6 for an IPv6-only network)")
	}
	o.network.TenantName = o.tenant
	return put(ctx, &o.common, networks, o.network.NetworkName, o.network)
}

// learnTags fills in the tag of each network that was created without one: the
// object holds the tag that was asked for, its inspection the tag in use.
func learnTags(ctx context.Context, client *api.Client, list []any) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelInspects)
	for i, o := range list {
		n := as[api.Network](o)
		if n.PktTag != 0 {
			continue
		}
		group.Go(func() error {
			got, err := client.Networks().Inspect(ctx, n.ObjectKey())
			if api.IsNotFound(err) { // deleted since it was listed
				return nil
			}
			n.PktTag = cmp.Or(got.Oper.ExternalPktTag, got.Oper.PktTag)
			list[i] = n
			return err
		})
	}
	return group.Wait()
}

// pinNetwork writes the tag in use into a network and adds its endpoints. For a
// network that --skip-broken leaves out it returns no documents and no error.
func pinNetwork(ctx context.Context, o *exportOptions, c *api.Client, d exported) ([]exported, error) {
	x := as[api.Network](d.object)
	got, err := c.Networks().Inspect(ctx, d.key)
	if err != nil {
		return nil, o.unreadable(d.kind+" "+d.key, err)
	}
	x.PktTag = got.Oper.PktTag
	// 1.x numbers a VXLAN network's VLAN on the bridge too: the VNI is the other one.
	if x.Encap == "vxlan" && got.Oper.ExternalPktTag != 0 {
		x.PktTag = got.Oper.ExternalPktTag
	}
	docs := []exported{{d.kind, d.key, x}}
	if n := len(got.Oper.Endpoints); n < got.Oper.NumEndpoints {
		err := fmt.Errorf("it reports %d endpoints and lists %d, so addresses in use would be assigned again", got.Oper.NumEndpoints, n)
		if err := o.unreadable("endpoints of network "+d.key, err); err != nil {
			return nil, err
		}
	}
	for _, e := range got.Oper.Endpoints {
		if err := o.ambiguous(d.key, e); err != nil {
			return nil, err
		}
		r := endpointRequest(x, e)
		if r.EndpointID == "" { // an address of 1.x that no command can release
			if _, err := fmt.Fprintf(o.stderr, "netctl: an endpoint of network %s at %s has no id and is left out\n", d.key, r.ConfigEP.IPAddress); err != nil {
				return nil, err
			}
			continue
		}
		docs = append(docs, exported{endpointKind, d.key + ":" + r.EndpointID, r})
	}
	return docs, nil
}
