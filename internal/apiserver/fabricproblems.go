package apiserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// appProfileOper has the parts of an app profile that the ACI fabric does not have.
func appProfileOper(_ *server, v *control.View, p model.AppProfile) any {
	is := []string{"appProfile " + p.Key.String()}
	rules := map[string]bool{}
	for _, name := range p.Groups {
		k := model.GroupKey{Tenant: p.Key.Tenant, Name: name}
		is = append(is, "endpointGroup "+k.String())
		g, _ := v.Group(k)
		for _, policy := range g.Policies {
			rules["rule "+model.PolicyKey{Tenant: p.Key.Tenant, Name: policy}.String()] = true
		}
	}
	at := "uni/tn-" + string(p.Key.Tenant) + "/ap-" + p.Key.Name // the fabric's own names
	var o api.AppProfileOper
	for _, x := range v.AciFabric().Problems {
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
	add := func(where, severity, text, remedy string) {
		out = append(out, api.Finding{Check: api.CheckFabric, Where: where, Severity: severity, Text: text, Remedy: remedy})
	}
	if f.fabric.Trouble != "" {
		add("cluster", api.SeverityError, "the ACI fabric is not as it should be: "+f.fabric.Trouble, "nothing, if it goes by itself: it is tried again; else look at "+f.fabric.Via)
	}
	for i, p := range f.fabric.Problems {
		if i == fabricFindings {
			add("cluster", api.SeverityWarning, fmt.Sprintf("%d more parts of the ACI fabric are not in force", len(f.fabric.Problems)-i+f.fabric.More), "'netctl aci-gw inspect' names them")
			break
		}
		add(p.Object, api.SeverityWarning, "not in force in the ACI fabric: "+p.Text, "say it so that a fabric can, or leave it")
	}
	return out
}

// FabricError tells what the ACI fabric does not have, in a sentence; nil = nothing.
func FabricError(f control.AciFabric) error {
	n := len(f.Problems) + f.More
	switch {
	case f.Trouble != "":
		return fmt.Errorf("the fabric is not as it should be; it is tried again: %s", f.Trouble)
	case n > 0:
		return fmt.Errorf("%d parts are not in force, such as %s: %s; 'netctl aci-gw inspect' names them", n, f.Problems[0].Object, f.Problems[0].Text)
	}
	return nil
}
