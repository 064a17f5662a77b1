package cli

import (
	"context"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
)

// parallelInspects bounds how many networks `network ls` asks about at once.
const parallelInspects = 8

var networks = kind[api.Network, api.NetworkOper]{
	noun: "network", arg: "NETWORK", example: "--tenant blue backend", perTenant: true,
	collection: (*api.Client).Networks,
}

var networkList = listing[api.Network, api.NetworkOper]{
	kind:   networks,
	tenant: func(n api.Network) string { return n.TenantName },
	name:   func(n api.Network) string { return n.NetworkName },
	header: []string{
		"Tenant", "Network", "Nw Type", "Encap type", "Packet tag", "Subnet", "Gateway",
		"IPv6Subnet", "IPv6Gateway", "Cfgd Tag",
	},
	learn: learnTags,
	row: func(n api.Network) []string {
		return []string{
			n.TenantName, n.NetworkName, n.NwType, n.Encap, strconv.Itoa(n.PktTag),
			n.Subnet, n.Gateway, n.IPv6Subnet, n.IPv6Gateway, n.CfgdTag,
		}
	},
}

type networkCreateOptions struct {
	common
	network api.Network
}

func newNetwork(f *factory) *command {
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
			newNetworkCreate(f, nil),
			newInspect(f, networks, "Show a network, its addresses and endpoints", nil),
			newList(f, networkList, "List networks; Packet tag is the VLAN id or VNI in use", nil),
			newRemove(f, networks, "Delete a network that nothing uses any more", nil),
		},
	}
}

func newNetworkCreate(f *factory, run func(context.Context, *networkCreateOptions) error) *command {
	o := &networkCreateOptions{
		common:  newCommon(f),
		network: api.Network{NwType: "data", Encap: "vxlan"},
	}
	n := &o.network
	c := &command{
		name:  "create",
		short: "Create a network",
		note:  noteInfra + "\n" + noteNetworkTag,
		examples: []string{
			"netctl network create --tenant blue --subnet 10.1.1.0/24 --gateway 10.1.1.254 backend",
			"netctl network create --encap vlan --pkt-tag 100 --subnet 10.2.0.10-10.2.0.99/16 office",
			"netctl network create --subnet 10.3.0.0/16 --subnetv6 2001:db8:3::/64 --gatewayv6 2001:db8:3::1 dual",
		},
		args: []string{"NETWORK"},
	}
	o.tenantFlag(&c.flags)
	c.flags.stringVar(&n.NwType, "nw-type, n", "TYPE", "data, or infra, which has no effect yet")
	c.flags.stringVar(&n.Encap, "encap, e", "ENCAP", "how hosts exchange packets: vlan or vxlan")
	c.flags.intVar(&n.PktTag, "pkt-tag, p", "TAG", "VLAN id or VNI; 0 takes the next free one")
	c.flags.stringVar(&n.Subnet, "subnet, s", "CIDR", "IPv4 subnet, or a range of it to allocate from (10.1.1.10-10.1.1.99/24); required unless --subnetv6 is given")
	c.flags.stringVar(&n.Gateway, "gateway, g", "ADDRESS", "IPv4 gateway inside the subnet")
	c.flags.stringVar(&n.IPv6Subnet, "subnetv6, s6", "CIDR", "IPv6 subnet")
	c.flags.stringVar(&n.IPv6Gateway, "gatewayv6, g6", "ADDRESS", "IPv6 gateway inside the IPv6 subnet")
	c.flags.stringVar(&n.CfgdTag, "nw-tag, tag", "NAME", "name for the network in other systems; has no effect yet")
	o.changeFlags(&c.flags, "json, j", "print the network as stored, as JSON")
	c.run = bindRun(o, orDefault(run, runNetworkCreate), []*string{&n.NetworkName})
	return c
}

func runNetworkCreate(ctx context.Context, o *networkCreateOptions) error {
	if o.network.Subnet == "" && o.network.IPv6Subnet == "" {
		return usageErrorf("--subnet is missing (or --subnetv6 for an IPv6-only network)")
	}
	o.network.TenantName = o.tenant
	return put(ctx, &o.common, networks, o.network.NetworkName, o.network)
}

// learnTags fills in the tag of each network that was created without one: the
// object holds what was asked for, its inspection what is in use.
func learnTags(ctx context.Context, client *api.Client, list []api.Network) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelInspects)
	for i, n := range list {
		if n.PktTag != 0 {
			continue
		}
		group.Go(func() error {
			got, err := client.Networks().Inspect(ctx, n.ObjectKey())
			if api.IsNotFound(err) { // deleted since it was listed
				return nil
			}
			list[i].PktTag = got.Oper.PktTag
			if got.Oper.ExternalPktTag != 0 {
				list[i].PktTag = got.Oper.ExternalPktTag
			}
			return err
		})
	}
	return group.Wait()
}
