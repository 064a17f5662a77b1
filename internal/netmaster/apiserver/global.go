package apiserver

import (
	"fmt"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// globalName is the key of the only global object.
const globalName = "global"

var _ = register(rest[api.Global, struct{}, model.Global]{
	collection: "globals", name: "global", access: ofCluster,
	key: only(globalName), list: singleton(ofSettings, (*control.SettingsView).Global), get: one(ofSettings, (*control.SettingsView).Global),
	parse: globalFromAPI, render: globalToAPI,
	change: plain(inSettings, (*control.Settings).ChangeGlobal), delete: forget(inSettings, (*control.Settings).DeleteGlobal),
	oper: api.GlobalOper{}, inspect: func(s *core, v *control.View, _ model.Global) any { return globalOper(v, s.mode) },
	fields: map[string]field{
		"name":             {text: "global", enum: []string{"global"}, required: true},
		"networkInfraType": {text: "default, aci or aci-opflex; empty = as it is; cannot change while there are networks", enum: []string{"", "default", "aci", "aci-opflex"}},
		"fwdMode":          {text: "bridge, or routing: networks of a tenant reach each other; empty = as it is", enum: []string{"", "bridge", "routing"}},
		"arpMode":          {text: "proxy or flood; empty = as it is; cannot change while there are networks", enum: []string{"", "proxy", "flood"}},
		"vlans":            {text: "lo-hi within 1-4094, around every VLAN in use; empty = as it is"},
		"vxlans":           {text: "lo-hi within 1-16777215, around every VNI in use; empty = as it is"},
		"pvtSubnet":        {text: "an IPv4 subnet of length 16; empty = as it is; cannot change while there are networks"},
		"tenantPrefixes":   {text: fmt.Sprintf("prefixes in which networks of tenant admins may have routes on hosts; when there are some, BGP announces addresses within them alone, otherwise those of networks that cluster admins created; at most %d; [\"none\"] empties the list; absent = as it is", model.MaxPrefixes)},
		"generatedLabels":  {text: fmt.Sprintf("labels of containers that are no part of their identity, so that no policy can select by them: at most %d names, and prefixes that end in \".\" or \"/\"; default stands for the list that a new cluster has; absent = as it is, and in an answer the default list; 409 for one that takes out a label which policies select by", model.MaxLabelFilter)},
	},
})

// globalFromAPI parses the cluster's settings. Empty fields are zero in the
// result: "leave as it is".
func globalFromAPI(o api.Global) (g model.Global, err error) {
	if o.Name != globalName {
		return g, model.InvalidField("name", o.Name, "must be "+globalName)
	}
	if g.Infra, err = apiconv.Optional(o.NetworkInfraType, model.ParseInfraType); err != nil {
		return g, err
	}
	if g.FwdMode, err = apiconv.Optional(o.FwdMode, model.ParseFwdMode); err != nil {
		return g, err
	}
	if g.ArpMode, err = apiconv.Optional(o.ArpMode, model.ParseArpMode); err != nil {
		return g, err
	}
	if g.VLANs, err = apiconv.Optional(o.Vlans, func(s string) (model.TagRange, error) {
		return model.ParseTagRange("vlans", s, model.MaxVLAN)
	}); err != nil {
		return g, err
	}
	if g.VXLANs, err = apiconv.Optional(o.Vxlans, func(s string) (model.TagRange, error) {
		return model.ParseTagRange("vxlans", s, model.MaxVNI)
	}); err != nil {
		return g, err
	}
	if g.PvtSubnet, err = apiconv.Optional(o.PvtSubnet, model.ParsePvtSubnet); err != nil {
		return g, err
	}
	if o.GeneratedLabels != nil && len(o.GeneratedLabels) == 0 {
		return g, model.InvalidField("generatedLabels", "[]", `must have an entry: leave it out to keep the list, or say ["default"]`)
	}
	if o.TenantPrefixes != nil && len(o.TenantPrefixes) == 0 {
		return g, model.InvalidField("tenantPrefixes", "[]", `must have an entry: leave it out to keep the list, or say ["none"]`)
	}
	if g.TenantPrefixes, err = model.ParsePrefixes("tenantPrefixes", o.TenantPrefixes); err != nil {
		return g, err
	}
	g.GeneratedLabels, err = model.ParseLabelFilter("generatedLabels", o.GeneratedLabels)
	return g, err
}

func globalToAPI(g model.Global) api.Global {
	o := api.Global{
		Key:              globalName,
		ArpMode:          string(g.ArpMode),
		FwdMode:          string(g.FwdMode),
		Name:             globalName,
		NetworkInfraType: string(g.Infra),
		PvtSubnet:        g.PvtSubnet.String(),
		Vlans:            g.VLANs.String(),
		Vxlans:           g.VXLANs.String(),
		TenantPrefixes:   g.TenantPrefixes.Strings(),
	}
	if f := g.Generated(); !f.Equal(model.DefaultGlobal().Generated()) { // else it is as in 1.x
		o.GeneratedLabels = f.Entries()
	}
	return o
}

func globalOper(v *control.View, mode string) api.GlobalOper {
	g, _ := v.Settings.Global()
	return api.GlobalOper{
		ClusterMode: mode,
		// As 1.x answered: the number before the range; no allocation begins there.
		FreeVXLANsStart: max(int(g.VXLANs.Lo)-1, 0),
		NumNetworks:     len(v.Networks.List("")),
		VlansInUse:      v.Networks.TagsInUse(model.EncapVLAN),
		VxlansInUse:     v.Networks.TagsInUse(model.EncapVXLAN),

		FormerLabels:      g.FormerLabels.Entries(),
		EndpointsToFollow: v.Endpoints.UnfollowedEndpoints(),
	}
}
