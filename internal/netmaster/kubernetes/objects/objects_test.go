package objects

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/fields"
	"github.com/contiv/netplugin/v2/internal/model"
)

var update = flag.Bool("update", false, "write packaging/kubernetes/crds.yaml and admission.yaml")

// TestManifestsEqualTheDefinitions: the manifests are what the definitions are.
func TestManifestsEqualTheDefinitions(t *testing.T) {
	for name, make := range map[string]func() ([]byte, error){"crds.yaml": Definitions, "admission.yaml": Admission} {
		want, err := make()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("..", "..", "..", "..", "packaging", "kubernetes", name)
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the definitions are, run with -update (%v):\n%s", file, err, cmp.Diff(string(got), string(want)))
		}
	}
}

// TestSchemaIsComplete: kubectl explain says something of each field, and server-side apply
// knows how to merge each list.
func TestSchemaIsComplete(t *testing.T) {
	var check func(path string, p props)
	check = func(path string, p props) {
		if text, _ := p["description"].(string); text == "" {
			t.Errorf("%s has no description", path)
		}
		if items, ok := p["items"].(props); ok {
			if kind := p["x-kubernetes-list-type"]; kind != "set" && kind != "map" {
				t.Errorf("%s is a list of type %v", path, kind)
			}
			check(path+"[]", items)
		}
		of, _ := p["properties"].(props)
		for name, q := range of {
			check(path+"."+name, q.(props))
		}
	}
	for _, k := range Kinds() {
		check(k.Kind+".spec", described(object(k.spec, nil, nil), "of the kind's text"))
	}
	check("status", status())
}

// TestSpecsHaveTheFieldsOfREST: a spec has the fields that the REST interface takes, but for the server's
// own, and a status those of Status.
func TestSpecsHaveTheFieldsOfREST(t *testing.T) {
	names := func(typ reflect.Type) (out []string) {
		var walk func(reflect.Type)
		walk = func(typ reflect.Type) {
			for f := range typ.Fields() {
				if f.Anonymous {
					walk(f.Type)
					continue
				}
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if !slices.Contains([]string{"key", "link-sets", "links", "owner"}, name) {
					out = append(out, name)
				}
			}
		}
		walk(typ)
		slices.Sort(out)
		return out
	}
	keys := func(p props) (out []string) {
		for k := range p {
			out = append(out, k)
		}
		slices.Sort(out)
		return out
	}
	for _, k := range Kinds() {
		spec, _ := reflect.TypeOf(k.New()).Elem().FieldByName("Spec")
		if diff := cmp.Diff(names(spec.Type), keys(k.spec)); diff != "" {
			t.Errorf("%s (-REST +schema):\n%s", k.Kind, diff)
		}
		if k.Model == "policy" {
			rules, _ := reflect.TypeFor[PolicySpec]().FieldByName("Rules")
			items := k.spec["rules"].(props)["items"].(props)["properties"].(props)
			want := slices.DeleteFunc(names(rules.Type.Elem()), func(f string) bool { return f == "tenantName" || f == "policyName" })
			if diff := cmp.Diff(want, keys(items)); diff != "" {
				t.Errorf("rules (-REST +schema):\n%s", diff)
			}
		}
	}
	have := keys(status()["properties"].(props))
	var want []string
	for f := range reflect.TypeFor[Status]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("status (-type +schema):\n%s", diff)
	}
}

// read makes an object of JSON.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestNamesDefaultToTheObjects: the name is the object's own where the spec has none, the tenant default.
func TestNamesDefaultToTheObjects(t *testing.T) {
	for want, o := range map[string]Object{
		`tenant "blue"`:              read[Tenant](t, `{"metadata":{"name":"blue"},"spec":{}}`),
		`tenant "Blue"`:              read[Tenant](t, `{"metadata":{"name":"blue"},"spec":{"tenantName":"Blue"}}`),
		`network "default:n"`:        read[Network](t, `{"metadata":{"name":"n"}}`),
		`network "blue:N.1"`:         read[Network](t, `{"metadata":{"name":"n"},"spec":{"tenantName":"blue","networkName":"N.1"}}`),
		`endpointGroup "blue:g"`:     read[EndpointGroup](t, `{"metadata":{"name":"x"},"spec":{"tenantName":"blue","groupName":"g"}}`),
		`policy "blue:p"`:            read[Policy](t, `{"metadata":{"name":"x"},"spec":{"tenantName":"blue","policyName":"p"}}`),
		`netprofile "default:gold"`:  read[NetProfile](t, `{"metadata":{"name":"gold"}}`),
		`netprofile "default:gold2"`: read[NetProfile](t, `{"metadata":{"name":"gold"},"spec":{"profileName":"gold2"}}`),
	} {
		if got := Owned(o).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestAllowingRulesWithLeavingPeersAreOmitted: a rule that allows is left out when its peer is about to go; one that
// denies is not, until it may deny everybody.
func TestAllowingRulesWithLeavingPeersAreOmitted(t *testing.T) {
	known := Known{
		Network: func(model.NetworkKey) Presence { return Leaving },
		Group:   func(model.GroupKey) Presence { return Leaving },
	}
	policy := read[Policy](t, `{"metadata":{"name":"p"},"spec":{"rules":[
		{"ruleId":"1","direction":"in","action":"allow","fromEndpointGroup":"g"},{"ruleId":"2","direction":"in","action":"deny","fromEndpointGroup":"g","protocol":"tcp","port":80},
		{"ruleId":"3","direction":"out","action":"allow","toNetwork":"n"},{"ruleId":"4","direction":"out","action":"deny","toNetwork":"n"},{"ruleId":"5","direction":"in","action":"allow"}]}}`)
	for ends, want := range map[bool]string{false: "2 deny g  80; 4 deny  n 0; 5 allow   0; ", true: "2 deny   80; 4 deny   0; 5 allow   0; "} {
		p, missing, err := TranslatePolicy(policy, known, ends)
		var got strings.Builder
		for _, r := range p.Value().Rules {
			fmt.Fprint(&got, r.Key.Rule, " ", r.Action, " ", r.Group, " ", r.Network, " ", r.Port, "; ")
		}
		if err != nil || got.String() != want || len(missing) != 2 {
			t.Errorf("ends %v: %q, want %q; %q, %v", ends, got.String(), want, missing, err)
		}
	}
}

// TestObjectsAreTranslated: what objects mean, what is left out of them and said, and what is refused
// of what no API server should have taken.
func TestObjectsAreTranslated(t *testing.T) {
	is := map[string]Presence{"there": Present, "leaving": Leaving}
	known := Known{
		Network: func(k model.NetworkKey) Presence { return is[string(k.Name)] },
		Group:   func(k model.GroupKey) Presence { return is[string(k.Name)] },
	}
	tenant, missing, err := TranslateTenant(read[Tenant](t, `{"metadata":{"name":"t"},"spec":{"defaultNetwork":"none","sharedNetworks":["x:there","x:none"]}}`), known)
	if err != nil || tenant.Value().DefaultNetwork != "" || len(tenant.Value().Shared) != 1 || len(missing) != 2 || !strings.Contains(missing[0], `"t:none" does not exist`) {
		t.Errorf("%+v, %q, %v", tenant.Value(), missing, err)
	}
	tenant, missing, err = TranslateTenant(read[Tenant](t, `{"metadata":{"name":"t"},"spec":{"defaultNetwork":"there"}}`), known)
	if err != nil || tenant.Value().DefaultNetwork != "there" || tenant.Value().Shared == nil || missing != nil {
		t.Errorf("%+v, %q, %v", tenant.Value(), missing, err)
	}
	rules := `{"metadata":{"name":"p"},"spec":{"tenantName":"t","rules":[
		{"ruleId":"1","direction":"in","action":"allow","protocol":"tcp","port":80,"fromEndpointGroup":"there"},
		{"ruleId":"2","direction":"in","action":"deny","fromEndpointGroup":"none"},
		{"ruleId":"3","direction":"out","action":"deny","toNetwork":"none"},
		{"ruleId":"4","direction":"out","action":"deny","toNetwork":"there","priority":7}]}}`
	p, missing, err := TranslatePolicy(read[Policy](t, rules), known, false)
	if err != nil || len(p.Value().Rules) != 2 || p.Value().Rules[1].Priority != 7 || p.Value().Rules[0].Key.String() != "t:p:1" || len(missing) != 2 || !strings.Contains(missing[1], `rule "3": network "t:none" does not exist`) {
		t.Errorf("%+v, %q, %v", p.Value(), missing, err)
	}
	n, err := TranslateNetwork(read[Network](t, `{"metadata":{"name":"n"},"spec":{"subnet":"10.1.1.0/24"}}`))
	if err != nil || n.Value().Encap != model.EncapVXLAN || n.Value().Key.String() != "default:n" {
		t.Errorf("%+v, %v", n.Value(), err)
	}
	g, err := TranslateGroup(read[EndpointGroup](t, `{"metadata":{"name":"g"},"spec":{"networkName":"n","policies":["a","a"]}}`))
	if err != nil || len(g.Value().Policies) != 1 || g.Value().Key.String() != "default:g" {
		t.Errorf("%+v, %v", g.Value(), err)
	}
	np, err := TranslateNetProfile(read[NetProfile](t, `{"metadata":{"name":"np"},"spec":{"bandwidth":"2g","DSCP":3,"burst":9}}`))
	if err != nil || np.Value().Bandwidth.Kbps != 2_000_000 || np.Value().DSCP != 3 || np.Value().Burst != 9 {
		t.Errorf("%+v, %v", np.Value(), err)
	}

	_, _, badTenant := TranslateTenant(read[Tenant](t, `{"metadata":{"name":"t"},"spec":{"sharedNetworks":["x"]}}`), known)
	_, _, ownShared := TranslateTenant(read[Tenant](t, `{"metadata":{"name":"x"},"spec":{"sharedNetworks":["x:there"]}}`), known)
	_, badNetwork := TranslateNetwork(read[Network](t, `{"metadata":{"name":"n"},"spec":{}}`))
	_, badGroup := TranslateGroup(read[EndpointGroup](t, `{"metadata":{"name":"g"},"spec":{}}`))
	_, badProfile := TranslateNetProfile(read[NetProfile](t, `{"metadata":{"name":"np"},"spec":{"DSCP":64}}`))
	_, _, badRule := TranslatePolicy(read[Policy](t, `{"metadata":{"name":"p"},"spec":{"rules":[{"ruleId":"1","direction":"up","action":"deny"}]}}`), known, false)
	_, _, hidden := TranslatePolicy(read[Policy](t, `{"metadata":{"name":"p"},"spec":{"rules":[{"ruleId":"1","direction":"in","action":"deny"},{"ruleId":"1","direction":"in","action":"deny","fromEndpointGroup":"none"}]}}`), known, false)
	for name, err := range map[string]error{"tenant": badTenant, "own network shared": ownShared, "network": badNetwork, "group": badGroup, "profile": badProfile, "rule": badRule, "rule that is left out": hidden} {
		if !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if badRule == nil || !strings.HasPrefix(badRule.Error(), "rules[0].direction") {
		t.Errorf("%v does not name the field", badRule)
	}
}

// TestCopiesAreDeep: a copy has all, and changes alone.
func TestCopiesAreDeep(t *testing.T) {
	for _, k := range Kinds() {
		o := k.New()
		o.SetName("a")
		o.SetLabels(map[string]string{"x": "y"})
		c, _ := o.DeepCopyObject().(Object)
		c.GetLabels()["x"] = "z"
		if c.GetName() != "a" || o.GetLabels()["x"] != "y" {
			t.Errorf("%s: %v of %v", k.Kind, c, o)
		}
		if l := k.NewList().DeepCopyObject(); l == nil {
			t.Errorf("%s: no list", k.Kind)
		}
	}
}

// TestDescriptionsAreThoseOfTheFields: a schema says of a field what package fields says,
// and allows nothing that it does not.
func TestDescriptionsAreThoseOfTheFields(t *testing.T) {
	check := func(kind string, of map[string]fields.Field, schema props) {
		t.Helper()
		for name, p := range schema {
			p, f := p.(props), of[name]
			if name == "rules" { // fields of their own
				continue
			}
			if text, _ := p["description"].(string); f.Description == "" || !strings.HasPrefix(text, f.Short("")) {
				t.Errorf("%s.%s: %q, want what package fields says: %q", kind, name, text, f.Short(""))
			}
			values, _ := p["enum"].([]string)
			for _, v := range values {
				if !slices.Contains(f.Enum, v) {
					t.Errorf("%s.%s: %q is none of %q", kind, name, v, f.Enum)
				}
			}
			if most, ok := p["maximum"].(int); ok && most != f.Max {
				t.Errorf("%s.%s: at most %d, and at most %d in package fields", kind, name, most, f.Max)
			}
		}
	}
	for _, k := range Kinds() {
		var object any
		switch k.Model {
		case "policy":
			object = api.Policy{}
			check("rule", fields.Of(api.Rule{}), k.spec["rules"].(props)["items"].(props)["properties"].(props))
		default:
			spec, _ := reflect.TypeOf(k.New()).Elem().FieldByName("Spec")
			object = reflect.Zero(spec.Type).Interface()
		}
		check(k.Model, fields.Of(object), k.spec)
	}
}
