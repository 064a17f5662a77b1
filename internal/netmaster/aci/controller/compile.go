package controller

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// Compile makes the fabric of a cluster's objects. What no fabric can have is left out
// of it and told.
func Compile(o control.FabricObjects) (aci.Fabric, []aci.Problem) {
	f := aci.Fabric{Settings: o.Settings, Networks: o.Networks, External: o.External, Rules: o.Rules}
	networks := map[model.NetworkKey]model.Network{}
	for _, n := range o.Networks {
		networks[n.Key] = n
	}
	without := map[model.GroupKey]string{}
	for _, g := range o.Groups {
		switch n, there := networks[g.NetworkKey()]; {
		case !there:
			without[g.Key] = "its network does not exist"
		case g.VLAN != 0:
			f.Groups = append(f.Groups, aci.Group{Group: g, VLAN: g.VLAN})
		case n.Encap != model.EncapVLAN:
			without[g.Key] = "its network has encap " + string(n.Encap) + ", and a fabric knows groups by VLANs: it is not in the fabric"
		default:
			without[g.Key] = "it has no VLAN, since it was created before groups got one: it is not in the fabric; delete it and create it again"
		}
	}
	var problems []aci.Problem
	for _, p := range o.Profiles {
		in := model.AppProfile{Key: p.Key}
		for _, name := range p.Groups {
			k := model.GroupKey{Tenant: p.Key.Tenant, Name: name}
			if why, is := without[k]; is {
				problems = append(problems, aci.Problem{Object: "endpointGroup " + k.String(), Text: why})
				continue
			}
			in.Groups = append(in.Groups, name)
		}
		f.Profiles = append(f.Profiles, in)
	}
	return f, problems
}
