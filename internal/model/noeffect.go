package model

import (
	"slices"
	"strings"
)

// NoEffect is something that is accepted and kept, and does nothing in this
// version: a kind of object, a field, or one value of a field. The answer to
// a write that sets it carries Text as a warning, the objects' and commands'
// documentation says it, and the hosts concerned show it as a problem. What
// gets an effect leaves the table; what comes without one enters it.
type NoEffect struct {
	Kind  string // collection, such as "netprofiles"
	Field string // JSON name; "" = the whole object
	Value string // the value that has no effect; "" = any, if the field is set
	Text  string // one sentence without full stop
	Hosts string // which hosts show it as a problem; "" = none, since none would behave differently
	set   func(object any) bool
}

// NoEffectPrefix begins the text of problems that tell of a NoEffect.
const NoEffectPrefix = "no effect: "

// Object names what has no effect for people, such as "endpointGroups blue:web
// netProfile"; key is the object's.
func (n NoEffect) Object(key string) string {
	return strings.TrimRight(n.Kind+" "+key+" "+n.Field+" "+n.Value, " ")
}

// SetIn tells whether an object of this package has it set.
func (n NoEffect) SetIn(object any) bool { return n.set(object) }

// in builds a set function for one type of object.
func in[T any](set func(T) bool) func(any) bool {
	return func(object any) bool {
		v, ok := object.(T)
		return ok && set(v)
	}
}

// every is set in every object of a type.
func every[T any](T) bool { return true }

const aci = "this version configures no ACI fabric"

var noEffects = []NoEffect{
	{
		Kind: "globals", Field: "fwdMode", Value: string(FwdRouting), Hosts: "all",
		Text: "forwarding mode routing has no effect yet: hosts forward as in mode bridge, and networks do not reach each other",
		set:  in(func(g Global) bool { return g.FwdMode == FwdRouting }),
	},
	{
		Kind: "globals", Field: "networkInfraType", Value: string(InfraACI), Hosts: "all",
		Text: "infrastructure type aci has no effect yet: " + aci + ", and hosts forward as with type default",
		set:  in(func(g Global) bool { return g.Infra == InfraACI }),
	},
	{
		Kind: "globals", Field: "networkInfraType", Value: string(InfraACIOpflex), Hosts: "all",
		Text: "infrastructure type aci-opflex has no effect yet: " + aci + ", and hosts forward as with type default",
		set:  in(func(g Global) bool { return g.Infra == InfraACIOpflex }),
	},
	{
		Kind: "networks", Field: "nwType", Value: string(NetworkInfra), Hosts: "those with endpoints on the network",
		Text: "network type infra has no effect yet: hosts get no endpoint of their own on the network, which is like one of type data",
		set:  in(func(n Network) bool { return n.Type == NetworkInfra }),
	},
	{
		Kind: "networks", Field: "cfgdTag",
		Text: "a network's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name",
		set:  in(func(n Network) bool { return n.CfgdTag != "" }),
	},
	{
		Kind: "endpointGroups", Field: "cfgdTag",
		Text: "a group's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name",
		set:  in(func(g Group) bool { return g.CfgdTag != "" }),
	},
	{
		Kind: "endpointGroups", Field: "netProfile", Hosts: "those with endpoints in the group",
		Text: "a group's net profile has no effect yet: hosts neither limit nor mark what its endpoints send",
		set:  in(func(g Group) bool { return g.NetProfile != "" }),
	},
	{
		Kind: "endpointGroups", Field: "extContractsGrps", Hosts: "those with endpoints in the group",
		Text: "a group's external contracts have no effect yet: " + aci,
		set:  in(func(g Group) bool { return len(g.ExtContracts) > 0 }),
	},
	{
		Kind: "netprofiles",
		Text: "net profiles are kept and have no effect yet: hosts neither limit nor mark what endpoints send",
		set:  in(every[NetProfile]),
	},
	{
		Kind: "serviceLBs", Field: "ports", Hosts: "those with containers of the tenant",
		Text: "services are not served yet: names resolve to their addresses, but no host spreads connections over the providers, so that connections fail",
		set:  in(func(s Service) bool { return len(s.Ports) > 0 }),
	},
	{
		Kind: "appProfiles",
		Text: "app profiles are kept and have no effect yet: they are for ACI, and " + aci,
		set:  in(every[AppProfile]),
	},
	{
		Kind: "Bgps", Hosts: "the one that it names",
		Text: "BGP settings are kept and have no effect yet: hosts run no router",
		set:  in(every[Bgp]),
	},
	{
		Kind: "extContractsGroups",
		Text: "external contracts are kept and have no effect yet: " + aci,
		set:  in(every[ExtContracts]),
	},
	{
		Kind: "aciGws",
		Text: "the ACI gateway's settings are kept and have no effect yet: " + aci,
		set:  in(every[AciGw]),
	},
	{
		Kind: "volumes",
		Text: "volumes are kept and have no effect: nothing makes storage of them",
		set:  in(every[Volume]),
	},
	{
		Kind: "volumeProfiles",
		Text: "volume profiles are kept and have no effect: nothing makes storage by them",
		set:  in(every[VolumeProfile]),
	},
}

// NoEffects returns the table, or one collection's part of it.
func NoEffects(kind string) []NoEffect {
	if kind == "" {
		return slices.Clone(noEffects)
	}
	var out []NoEffect
	for _, n := range noEffects {
		if n.Kind == kind {
			out = append(out, n)
		}
	}
	return out
}

// WithoutEffect returns what an object of this package has set without effect.
func WithoutEffect(object any) []NoEffect {
	var out []NoEffect
	for _, n := range noEffects {
		if n.SetIn(object) {
			out = append(out, n)
		}
	}
	return out
}
