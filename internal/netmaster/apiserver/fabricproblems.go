package apiserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// appProfileOper has the parts of an app profile that the ACI fabric does not have.
func appProfileOper(_ *serverContext, v *control.View, p model.AppProfile) any {
	is := []string{"appProfile " + p.Key.String()}
	rules := map[string]bool{}
	for _, name := range p.Groups {
		k := model.GroupKey{Tenant: p.Key.Tenant, Name: name}
		is = append(is, "endpointGroup "+k.String())
		g, _ := v.Groups.Get(k)
		for _, policy := range g.Policies {
			rules["rule "+model.PolicyKey{Tenant: p.Key.Tenant, Name: policy}.String()] = true
		}
	}
	at := "uni/tn-" + string(p.Key.Tenant) + "/ap-" + p.Key.Name // the fabric's own names
	var o api.AppProfileOper
	for _, x := range v.Settings.AciFabric().Problems {
		end := max(0, strings.LastIndexByte(x.Object, ':'))
		if slices.Contains(is, x.Object) || rules[x.Object[:end]] || x.Object == at || strings.HasPrefix(x.Object, at+"/") {
			o.Problems = append(o.Problems, api.AciProblem(x))
		}
	}
	return o
}

// fabricFindings is how many problems of the ACI fabric the doctor names.
const fabricFindings = 20

// judgeFabric tells what the ACI fabric does not have.
func (f facts) judgeFabric() (out []api.Finding) {
	if err := fabricError(f.fabric); err != nil {
		out = append(out, condition.MasterFabric.Finding("cluster", err.Error()))
	}
	for i, p := range f.fabric.Problems {
		if i == f.most {
			out = append(out, condition.MasterFabricObjects.Finding("cluster", fmt.Sprintf("%d more parts of the ACI fabric are not in force", len(f.fabric.Problems)-i+f.fabric.More)))
			break
		}
		out = append(out, condition.MasterFabricObjects.Finding(p.Object, "not in force in the ACI fabric: "+p.Text))
	}
	return out
}

func fabricError(f control.AciFabric) error {
	if f.Trouble == "" {
		return nil
	}
	return fmt.Errorf("the ACI fabric is not in sync; trying again: %s", f.Trouble)
}

// AddFabric enters to a netmaster's health what the ACI fabric does not have.
func AddFabric(h *api.Health, f control.AciFabric) {
	condition.MasterFabric.Add(h, fabricError(f))
	var err error
	if n := len(f.Problems) + f.More; n > 0 {
		err = fmt.Errorf("%d parts are not in force, such as %s: %s", n, f.Problems[0].Object, f.Problems[0].Text)
	}
	condition.MasterFabricObjects.Add(h, err)
}
