package apiserver

import (
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// aciGwName is the key of the only ACI gateway.
const aciGwName = "aciGw"

var _ = register(kindSpec[api.AciGw, struct{}, model.AciGw]{
	collection: "aciGws", name: "aciGw", access: ofCluster,
	key: onlyKey(aciGwName), list: singleton(viewSettings, (*control.SettingsView).AciGw), get: one(viewSettings, (*control.SettingsView).AciGw),
	parse: aciGwFromAPI, render: aciGwToAPI,
	change: changeByValue(control.ChangeAciGw), delete: func(*control.Controller, struct{}) control.Deletion { return control.DeleteAciGw() },
	oper: api.AciGwOper{}, inspect: aciGwOper, unset: aciGwUnset,
})

func aciGwFromAPI(o api.AciGw) (g model.AciGw, err error) {
	if o.Name != aciGwName {
		return g, model.InvalidField("name", o.Name, "must be "+aciGwName)
	}
	if g.PathBindings, err = model.ParsePathBindings(o.PathBindings); err != nil {
		return g, err
	}
	if g.NodeBindings, err = model.ParseNodeBindings(o.NodeBindings); err != nil {
		return g, err
	}
	if g.EnforcePolicies, err = model.ParseYesNo("enforcePolicies", o.EnforcePolicies, true); err != nil {
		return g, err
	}
	if g.IncludeCommonTenant, err = model.ParseYesNo("includeCommonTenant", o.IncludeCommonTenant, false); err != nil {
		return g, err
	}
	g.PhysicalDomain = o.PhysicalDomain
	return g, nil
}

func aciGwToAPI(g model.AciGw) api.AciGw {
	return api.AciGw{
		Key: aciGwName, EnforcePolicies: yesNo(g.EnforcePolicies), IncludeCommonTenant: yesNo(g.IncludeCommonTenant),
		Name: aciGwName, NodeBindings: strings.Join(g.NodeBindings, ","), PathBindings: strings.Join(g.PathBindings, ","),
		PhysicalDomain: g.PhysicalDomain,
	}
}

// aciGwUnset are the settings in force while none are set: an ACI fabric is kept by them,
// and may have trouble.
func aciGwUnset(v *control.View) (model.AciGw, bool) {
	settings, _ := v.Settings.Global()
	return model.AciGw{EnforcePolicies: true}, settings.Infra == model.InfraACI || v.Settings.AciFabric().Kept
}

func aciGwOper(_ *serverContext, v *control.View, _ model.AciGw) any {
	f := v.Settings.AciFabric()
	o := api.AciGwOper{NumAppProfiles: len(v.Tenants.AppProfiles("")), Via: f.Via, InStep: f.InStep, Trouble: f.Trouble, Since: f.Since}
	for _, p := range f.Problems {
		o.Problems = append(o.Problems, api.AciProblem(p))
	}
	return o
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
