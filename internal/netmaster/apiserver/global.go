package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// globalName is the key of the only global object.
const globalName = "global"

var _ = register(kindSpec[api.Global, struct{}, model.Global]{
	collection: "globals", name: "global", access: ofCluster,
	key: onlyKey(globalName), list: singleton(viewSettings, (*control.SettingsView).Global), get: one(viewSettings, (*control.SettingsView).Global),
	parse: globalFromAPI, render: globalToAPI,
	change: changeAsIs(settingsUseCases, (*control.Settings).ChangeGlobal), delete: func(c *control.Controller, _ struct{}) control.Deletion { return c.Settings.DeleteGlobal() },
	oper: api.GlobalOper{}, inspect: func(s *serverContext, v *control.View, _ model.Global) any { return globalOper(v, s.mode) },
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
		return g, model.InvalidField("generatedLabels", "[]", `must have an entry: omit it to keep the list, or give ["default"]`)
	}
	if o.TenantPrefixes != nil && len(o.TenantPrefixes) == 0 {
		return g, model.InvalidField("tenantPrefixes", "[]", `must have an entry: omit it to keep the list, or give ["none"]`)
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
		EndpointsToFollow: v.Endpoints.CountOldIdentities(),
	}
}
