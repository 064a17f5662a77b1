package cli

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

// objectKind is a kind of object without its type: what documents, get and
// export work on.
type objectKind struct {
	name      string   // kind in documents: the object's type on the wire
	aliases   []string // as well, where a kind is named on the command line
	single    string   // key of the only object; empty = there may be many
	seen      bool     // get only shows it: no document has it
	perTenant bool
	typ       reflect.Type
	key       func(o any) string
	shortName func(o any) string // name within its tenant
	tenant    func(o any) string
	list      func(ctx context.Context, c *api.Client) ([]any, error) // ordered by key
	get       func(ctx context.Context, c *api.Client, key string) (any, error)
	header    []string
	row       func(o any) []string
	// learn fills in what rows show beyond the objects themselves.
	learn func(ctx context.Context, c *api.Client, list []any) error
	// wide are the columns of -o wide beyond header.
	wideHeader []string
	wideRow    func(o any) []string
}

// kindOf builds an objectKind of a listing.
func kindOf[T api.Object, O any](name string, aliases []string, l listing[T, O]) *objectKind {
	k := &objectKind{
		name: name, aliases: aliases, perTenant: l.kind.perTenant, typ: reflect.TypeFor[T](),
		header:    l.header,
		key:       func(o any) string { return of[T](o).ObjectKey() },
		shortName: func(o any) string { return l.name(of[T](o)) },
		tenant:    func(any) string { return "" },
		row:       func(o any) []string { return l.row(of[T](o)) },
		get: func(ctx context.Context, c *api.Client, key string) (any, error) {
			return l.kind.collection(c).Get(ctx, key)
		},
		list: func(ctx context.Context, c *api.Client) ([]any, error) {
			found, err := l.kind.collection(c).List(ctx)
			slices.SortFunc(found, func(a, b T) int { return cmp.Compare(a.ObjectKey(), b.ObjectKey()) })
			return untyped(found), err
		},
	}
	if l.tenant != nil {
		k.tenant = func(o any) string { return l.tenant(of[T](o)) }
	}
	if l.learn != nil {
		k.learn = func(ctx context.Context, c *api.Client, list []any) error {
			typed := make([]T, len(list))
			for i, o := range list {
				typed[i] = of[T](o)
			}
			err := l.learn(ctx, c, typed)
			copy(list, untyped(typed))
			return err
		}
	}
	return k
}

// of returns an object of the kind's type; it is one by construction.
func of[T any](o any) T {
	t, _ := o.(T)
	return t
}

func untyped[T any](list []T) []any {
	out := make([]any, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

// wide adds the columns of -o wide.
func (k *objectKind) wide(header []string, row func(o any) []string) *objectKind {
	k.wideHeader, k.wideRow = header, row
	return k
}

var globalList = listing[api.Global, api.GlobalOper]{
	kind:   kind[api.Global, api.GlobalOper]{noun: "global", collection: (*api.Client).Globals},
	name:   func(g api.Global) string { return g.Name },
	header: []string{"Fabric mode", "Forward mode", "ARP mode", "Vlan Range", "Vxlan range", "Private subnet"},
	row: func(g api.Global) []string {
		return []string{g.NetworkInfraType, g.FwdMode, g.ArpMode, g.Vlans, g.Vxlans, g.PvtSubnet}
	},
}

var aciGwList = listing[api.AciGw, api.AciGwOper]{
	kind:   kind[api.AciGw, api.AciGwOper]{noun: "aci-gw", collection: (*api.Client).AciGws},
	name:   func(g api.AciGw) string { return g.Name },
	header: []string{"Physical domain", "Node bindings", "Path bindings", "Enforce policies", "Include Common-Tenant"},
	row: func(g api.AciGw) []string {
		return []string{g.PhysicalDomain, g.NodeBindings, g.PathBindings, g.EnforcePolicies, g.IncludeCommonTenant}
	},
}

var ruleList = listing[api.Rule, struct{}]{
	kind:   rules,
	tenant: func(r api.Rule) string { return r.TenantName },
	name:   func(r api.Rule) string { return r.PolicyName + ":" + r.RuleID },
	header: []string{"Tenant", "Policy", "Rule", "Direction", "Priority", "Peer", "Protocol", "Port", "Action"},
	row: func(r api.Rule) []string {
		peer := r.FromEndpointGroup + r.ToEndpointGroup + r.FromNetwork + r.ToNetwork + r.FromIPAddress + r.ToIPAddress
		return []string{r.TenantName, r.PolicyName, r.RuleID, r.Direction, number(r.Priority), peer, r.Protocol, number(r.Port), r.Action}
	},
}

var volumeList = listing[api.Volume, struct{}]{
	kind:   kind[api.Volume, struct{}]{noun: "volume", perTenant: true, collection: (*api.Client).Volumes},
	tenant: func(v api.Volume) string { return v.TenantName },
	name:   func(v api.Volume) string { return v.VolumeName },
	header: []string{"Tenant", "Volume", "Datastore", "Pool", "Size", "Mount point"},
	row: func(v api.Volume) []string {
		return []string{v.TenantName, v.VolumeName, v.DatastoreType, v.PoolName, v.Size, v.MountPoint}
	},
}

var volumeProfileList = listing[api.VolumeProfile, struct{}]{
	kind:   kind[api.VolumeProfile, struct{}]{noun: "volume profile", perTenant: true, collection: (*api.Client).VolumeProfiles},
	tenant: func(v api.VolumeProfile) string { return v.TenantName },
	name:   func(v api.VolumeProfile) string { return v.VolumeProfileName },
	header: []string{"Tenant", "Volume profile", "Datastore", "Pool", "Size", "Mount point"},
	row: func(v api.VolumeProfile) []string {
		return []string{v.TenantName, v.VolumeProfileName, v.DatastoreType, v.PoolName, v.Size, v.MountPoint}
	},
}

// objectKinds returns all kinds in the order in which export writes them.
func objectKinds() []*objectKind {
	global := kindOf("global", []string{"globals"}, globalList)
	global.single = globalKey
	aciGw := kindOf("aciGw", []string{"aci-gw", "aciGws"}, aciGwList)
	aciGw.single = aciGwKey
	return []*objectKind{
		global,
		kindOf("tenant", []string{"tenants"}, tenantList).wide([]string{"Default network", "Networks", "Groups", "Policies"}, func(o any) []string {
			t := of[api.Tenant](o)
			return []string{t.DefaultNetwork, number(len(t.LinkSets.Networks)), number(len(t.LinkSets.EndpointGroups)), number(len(t.LinkSets.Policies))}
		}),
		kindOf("netprofile", []string{"netprofiles"}, netProfileList).wide([]string{"Groups"}, func(o any) []string {
			return []string{linked(of[api.NetProfile](o).LinkSets.EndpointGroups)}
		}),
		kindOf("extContractsGroup", []string{"external-contracts", "extContractsGroups"}, extContractsList).wide([]string{"Groups"}, func(o any) []string {
			return []string{linked(of[api.ExtContractsGroup](o).LinkSets.EndpointGroups)}
		}),
		kindOf("network", []string{"networks", "net", "nets"}, networkList).wide([]string{"Groups", "Services"}, func(o any) []string {
			n := of[api.Network](o)
			return []string{linked(n.LinkSets.EndpointGroups), linked(n.LinkSets.Servicelbs)}
		}),
		kindOf("policy", []string{"policies", "policys"}, policyList).wide([]string{"Groups", "Rules"}, func(o any) []string {
			p := of[api.Policy](o)
			return []string{linked(p.LinkSets.EndpointGroups), number(len(p.LinkSets.Rules))}
		}),
		kindOf("endpointGroup", []string{"group", "groups", "endpointGroups"}, groupList).wide([]string{"External contracts", "App profile"}, func(o any) []string {
			g := of[api.EndpointGroup](o)
			return []string{strings.Join(g.ExtContractsGrps, ","), lastPart(g.Links.AppProfile.Key)}
		}),
		kindOf("rule", []string{"rules"}, ruleList),
		kindOf("appProfile", []string{"app-profile", "appProfiles"}, appProfileList),
		kindOf("serviceLB", []string{"service", "services", "serviceLBs"}, serviceList).wide([]string{"Ports", "Preferred address"}, func(o any) []string {
			s := of[api.ServiceLB](o)
			return []string{strings.Join(s.Ports, ","), s.IPAddress}
		}),
		kindOf("Bgp", []string{"bgps"}, bgpList),
		aciGw,
		kindOf("volume", []string{"volumes"}, volumeList),
		kindOf("volumeProfile", []string{"volumeProfiles"}, volumeProfileList),
	}
}

// linked shows a set of links by their names.
func linked(set api.LinkSet) string {
	var names []string
	for key := range set {
		names = append(names, lastPart(key))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, ':')+1:] }

// findKind finds a kind by its name or an alias, in upper or lower case.
func findKind(name string) (*objectKind, error) {
	var all []string
	for _, k := range objectKinds() {
		for _, n := range append([]string{k.name}, k.aliases...) {
			if strings.EqualFold(n, name) {
				return k, nil
			}
		}
		all = append(all, k.name)
	}
	return nil, usageErrorf("unknown kind %q; there are %s", name, strings.Join(all, ", "))
}

// findShown is findKind with the kinds that are only shown.
func findShown(name string) (*objectKind, error) {
	var all []string
	for _, k := range seenKinds() {
		for _, n := range append([]string{k.name}, k.aliases...) {
			if strings.EqualFold(n, name) {
				return k, nil
			}
		}
		all = append(all, k.name)
	}
	k, err := findKind(name)
	if err != nil {
		err = usageErrorf("%v, %s", err, strings.Join(all, ", "))
	}
	return k, err
}
