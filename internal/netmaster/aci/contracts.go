package aci

import (
	"cmp"
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// kind is what a contract is for, in the words of 1.x.
type kind string

const (
	from   kind = "Frm"    // the peer consumes
	to     kind = "To"     // the peer provides
	expose kind = "Expose" // its consumers are not ours
)

// contractKey names what a policy's rules about one peer come to.
type contractKey struct {
	policy model.PolicyKey
	kind   kind
	peer   model.GroupName // "" of kind expose
}

func (k contractKey) compare(o contractKey) int {
	return cmp.Or(cmp.Compare(k.policy.Tenant, o.policy.Tenant), cmp.Compare(k.policy.Name, o.policy.Name),
		cmp.Compare(k.kind, o.kind), cmp.Compare(k.peer, o.peer))
}

// entry is what one rule lets through; rules that say the same are one entry.
type entry struct {
	protocol model.Protocol
	port     uint16 // of the provider; 0 = any
}

func (e entry) compare(o entry) int {
	return cmp.Or(cmp.Compare(e.protocol, o.protocol), cmp.Compare(e.port, o.port))
}

// contract is what providers let consumers do.
type contract struct {
	key                  contractKey
	entries              map[entry]bool
	providers, consumers map[model.GroupKey]bool
}

func (c *contract) sorted() []entry { return slices.SortedFunc(maps.Keys(c.entries), entry.compare) }

// contracts derives what the policies of groups in profiles come to. A policy that
// no such group has comes to nothing.
func (x *index) contracts() []*contract {
	all := map[contractKey]*contract{}
	for g := range x.profile {
		for _, name := range x.groups[g].Policies {
			for _, r := range x.rules[model.PolicyKey{Tenant: g.Tenant, Name: name}] {
				x.addRule(all, g, r)
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *contract) int { return a.key.compare(b.key) })
}

// addRule adds what rule r of a policy of group g lets through.
func (x *index) addRule(all map[contractKey]*contract, g model.GroupKey, r model.Rule) {
	object := "rule " + r.Key.String()
	key := contractKey{policy: r.Key.PolicyKey(), peer: r.Group}
	switch {
	case r.Network != "" || r.Addr.IsValid():
		x.problem(object, "names a network or an address: a fabric's contracts are between groups")
		return
	case r.Protocol == 0:
		x.problem(object, "names protocol 0, which a fabric takes for any")
		return
	case r.Port != 0 && r.Protocol != model.ProtoTCP && r.Protocol != model.ProtoUDP:
		x.problem(object, "names a port of a protocol other than tcp and udp, of which a fabric knows no ports")
		return
	case r.Direction == model.In && r.Group != "":
		key.kind = from
	case r.Direction == model.In:
		key.kind = expose
	case r.Group != "":
		key.kind = to
	default:
		x.problem(object, "lets endpoints out to anybody: a fabric's contracts are between groups")
		return
	}
	peer := model.GroupKey{Tenant: g.Tenant, Name: r.Group}
	if _, tied := x.profile[peer]; r.Group != "" && !tied {
		x.problem(object, "group "+string(r.Group)+" is in no app profile, so the fabric does not know it")
		return
	}
	c := all[key]
	if c == nil {
		c = &contract{key, map[entry]bool{}, map[model.GroupKey]bool{}, map[model.GroupKey]bool{}}
		all[key] = c
	}
	c.entries[entry{r.Protocol, r.Port}] = true
	switch key.kind {
	case from:
		c.providers[g], c.consumers[peer] = true, true
	case to:
		c.consumers[g], c.providers[peer] = true, true
	case expose:
		c.providers[g] = true
	}
}

// externalContract is a contract that is not ours and that a group refers to.
type externalContract struct {
	dn       string
	provided bool
}

// externalContractsOf returns the group's external contracts, each once, by DN.
func (x *index) externalContractsOf(g Group) []externalContract {
	seen := map[externalContract]bool{}
	for _, name := range g.ExtContracts {
		e, ok := x.external[model.ExtContractsKey{Tenant: g.Key.Tenant, Name: name}]
		if !ok {
			x.problem("endpointGroup "+g.Key.String(), "external contracts "+name+" do not exist")
		}
		for _, dn := range e.Contracts {
			seen[externalContract{dn, e.Type == model.ContractsProvided}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b externalContract) int {
		if c := cmp.Compare(a.dn, b.dn); c != 0 || a.provided == b.provided {
			return c
		}
		if a.provided {
			return 1
		}
		return -1
	})
}
