package aci

import (
	"cmp"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Fabric is all that a fabric should have of one cluster.
type Fabric struct {
	Settings model.AciGw
	Profiles []model.AppProfile
	Groups   []Group              // at least the ones that profiles tie
	Networks []model.Network      // at least those of the groups
	Rules    []model.Rule         // of the groups' policies
	External []model.ExtContracts // at least the ones that groups name
}

// Group is an endpoint group and the VLAN that its endpoints send with.
type Group struct {
	model.Group
	VLAN uint16 // 1 to 4094, of this group alone
}

// Problem is a part of a Fabric that is not in force, and why; the rest is.
type Problem struct {
	Object string `json:"object"` // such as "rule blue:web:1"
	Text   string `json:"text"`
}

// maxProblem is how many bytes a problem's text has at most: it may name what others
// have made.
const maxProblem = 600

func sortProblems(list []Problem) []Problem {
	for i := range list {
		list[i].Text = clip(list[i].Text, maxProblem)
	}
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(list)
}

// index is a Fabric that was checked, by keys.
type index struct {
	Fabric
	groups   map[model.GroupKey]Group
	networks map[model.NetworkKey]model.Network
	external map[model.ExtContractsKey]model.ExtContracts
	rules    map[model.PolicyKey][]model.Rule
	profile  map[model.GroupKey]model.AppProfileKey // of the groups that are in one
	problems []Problem
	outer    []externalReference // references to contracts outside
}

// externalReference is a group's reference, with the DN rel, to a contract that is not ours.
type externalReference struct{ rel, name, dn, object string }

// check returns f by its keys. What no store of ours can hold is an error of kind
// model.ErrInvalid; what one can hold and a fabric cannot is a problem.
func (f Fabric) check() (*index, error) {
	if err := f.Settings.Validate(); err != nil {
		return nil, err
	}
	x := &index{
		Fabric: f, groups: map[model.GroupKey]Group{}, networks: map[model.NetworkKey]model.Network{},
		external: map[model.ExtContractsKey]model.ExtContracts{}, rules: map[model.PolicyKey][]model.Rule{},
		profile: map[model.GroupKey]model.AppProfileKey{},
	}
	for _, n := range f.Networks {
		x.networks[n.Key] = n
	}
	for _, e := range f.External {
		x.external[e.Key] = e
	}
	vlans := map[uint16]model.GroupKey{}
	for _, g := range f.Groups {
		if g.VLAN < 1 || g.VLAN > 4094 {
			return nil, model.InvalidField("vlan", g.VLAN, "of group "+g.Key.String()+" must be 1 to 4094")
		}
		if other, taken := vlans[g.VLAN]; taken {
			return nil, model.InvalidField("vlan", g.VLAN, "is that of group "+other.String()+" and of "+g.Key.String())
		}
		vlans[g.VLAN] = g.Key
		if _, ok := x.networks[g.NetworkKey()]; !ok {
			return nil, model.InvalidField("network", g.NetworkKey(), "of group "+g.Key.String()+" must exist")
		}
		x.groups[g.Key] = g
	}
	for _, r := range f.Rules {
		if r.Action == model.Allow { // the others are nothing to a fabric
			x.rules[r.Key.PolicyKey()] = append(x.rules[r.Key.PolicyKey()], r)
		}
	}
	return x, x.assignProfiles()
}

// assignProfiles puts groups into profiles.
func (x *index) assignProfiles() error {
	x.Profiles = slices.SortedFunc(slices.Values(x.Profiles), func(a, b model.AppProfile) int {
		return cmp.Or(cmp.Compare(a.Key.Tenant, b.Key.Tenant), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	for i, p := range x.Profiles {
		if err := p.Validate(); err != nil {
			return err
		}
		if i > 0 && x.Profiles[i-1].Key == p.Key {
			return model.InvalidField("appProfileName", p.Key, "must be named once")
		}
		for _, name := range p.Groups {
			k := model.GroupKey{Tenant: p.Key.Tenant, Name: name}
			if _, ok := x.groups[k]; !ok {
				return model.InvalidField("endpointGroups", k, "of profile "+p.Key.String()+" must exist")
			}
			if first, taken := x.profile[k]; taken {
				x.problem("appProfile "+p.Key.String(), "group "+string(name)+" is in profile "+first.Name+" already, and a group is one endpoint group of a fabric")
				continue
			}
			x.profile[k] = p.Key
		}
	}
	return nil
}

func (x *index) problem(object, text string) {
	x.problems = append(x.problems, Problem{object, text})
}

// members returns the profile's groups by name, without groups of other profiles.
func (x *index) members(p model.AppProfile) []Group {
	var out []Group
	for _, name := range p.Groups {
		if k := (model.GroupKey{Tenant: p.Key.Tenant, Name: name}); x.profile[k] == p.Key {
			out = append(out, x.groups[k])
		}
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Compare(a.Key.Name, b.Key.Name) })
	return out
}
