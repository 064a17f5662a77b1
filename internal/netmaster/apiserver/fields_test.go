package apiserver

import (
	stdcmp "cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/pagetest"
	"github.com/contiv/netplugin/v2/internal/fields"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var update = flag.Bool("update", false, "write api/openapi.json and pages of docs/reference")

const updateFields = "go test ./internal/netmaster/apiserver -run TestDescriptionIsWhatTheCodeSays -update"

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (c cases) and(pass, fail []string) cases {
	return cases{append(c.pass, pass...), append(c.fail, fail...)}
}

func merge(ms ...map[string]cases) map[string]cases {
	out := map[string]cases{}
	for _, m := range ms {
		maps.Copy(out, m)
	}
	return out
}

// lay returns a kind's object with a change laid over it, and its key.
func (k kindCases) lay(t *testing.T, change string) (body, key string) {
	t.Helper()
	o := map[string]any{}
	for _, text := range []string{k.object, change} {
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	var parts []string
	for _, f := range k.key {
		s, _ := o[f].(string)
		parts = append(parts, s)
	}
	return mustJSON(o), strings.Join(parts, ":")
}

// addHosts puts hosts into the store as agents do.
func (f *fixture) addHosts(names ...string) {
	f.t.Helper()
	_, err := f.mem.Update(f.t.Context(), func(tx store.Tx) error {
		for _, n := range names {
			if err := tables.Hosts.Put(tx, model.Host{Name: model.HostName(n), Driver: "fake"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestFieldConstraintsAreEnforced: each constraint of each field of each kind, with values that pass
// and values that fail. What passes is stored, echoed and can be deleted; a
// refusal is a 400, 404 or 409 that names the field, and leaves the store as it
// was, byte for byte.
func TestFieldConstraintsAreEnforced(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(fieldCases)) {
		t.Run(kind, func(t *testing.T) {
			f := serve(t, 0)
			f.populate()
			f.addHosts("host1", text256)
			f.must("POST", "/api/v1/netprofiles/blue:np/", `{"tenantName":"blue","profileName":"np"}`)
			f.must("POST", "/api/v1/extContractsGroups/blue:ec/", `{"tenantName":"blue","contractsGroupName":"ec","contractsType":"provided"}`)
			f.must("POST", "/api/v1/serviceLBs/blue:taken/", `{"tenantName":"blue","networkName":"n","serviceName":"taken","selectors":["a=b"],"ports":["1:1:tcp"],"ipAddress":"10.1.1.99"}`)
			k := fieldCases[kind]
			for _, name := range slices.Sorted(maps.Keys(k.fields)) {
				c := k.fields[name]
				for _, change := range c.pass {
					f.accepts(kind, k, change)
				}
				before := f.contents()
				for _, change := range c.fail {
					f.refuses(kind, name, k, change)
				}
				if d := cmp.Diff(before, f.contents()); d != "" {
					t.Errorf("%s: refusals changed the store:\n%s", name, d)
				}
			}
		})
	}
}

func (f *fixture) accepts(kind string, k kindCases, change string) {
	f.t.Helper()
	body, key := k.lay(f.t, change)
	path := "/api/v1/" + kind + "/" + url.PathEscape(key) + "/"
	status, answer := f.do("POST", path, body)
	if status != 200 {
		f.t.Errorf("%s: %d %s", clip([]byte(body)), status, answer)
		return
	}
	// What was answered can be put back, and changes nothing.
	before := f.contents()
	if status, again := f.do("PUT", path, answer); status != 200 || again != answer {
		f.t.Errorf("%s, put back: %d %s, want %s", change, status, again, answer)
	}
	if d := cmp.Diff(before, f.contents()); d != "" {
		f.t.Errorf("%s, put back, changes the store: %s", change, d)
	}
	if kind == "globals" {
		return // the next change sets it again
	}
	f.must("DELETE", path, "")
}

func (f *fixture) refuses(kind, name string, k kindCases, change string) {
	f.t.Helper()
	body, key := k.lay(f.t, change)
	if key == "" {
		key = "-"
	}
	status, answer := f.do("POST", "/api/v1/"+kind+"/"+url.PathEscape(key)+"/", body)
	short := clip([]byte(change))
	if status != 400 && status != 404 && status != 409 {
		f.t.Errorf("%s: %d %s; want a refusal", short, status, answer)
	}
	if !names(answer, name) {
		f.t.Errorf("%s: %q does not name %s", short, answer, name)
	}
}

// names reports whether a refusal tells which field is wrong: by its JSON name,
// or by the words for what it names.
func names(answer, field string) bool {
	words := map[string][]string{
		"tenantName":  {"tenant ", "none:"},
		"policyName":  {"policy "},
		"networkName": {"network ", "name "},
		"groupName":   {"name "},
		"policies":    {"policy "},
		"port":        {"port "},
	}[field]
	for _, w := range append(words, field) {
		if strings.Contains(answer, w) {
			return true
		}
	}
	for _, other := range []string{"ruleId", "fromIpAddress", "toIpAddress"} { // two kinds of peer
		if strings.Contains(answer, other) && strings.Contains(answer, field) {
			return true
		}
	}
	return false
}

// TestEveryFieldHasWordsAndCases: every field that a client sets has its words and its
// cases, and nothing else has.
func TestEveryFieldHasWordsAndCases(t *testing.T) {
	for _, k := range collections() {
		var inType []string
		typ := reflect.TypeOf(k.object)
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "key" && name != "link-sets" && name != "links" {
				inType = append(inType, name)
			}
		}
		slices.Sort(inType)
		if d := cmp.Diff(inType, sortedKeys(k.fields)); d != "" {
			t.Errorf("%s: fields: %s", k.collection, d)
		}
		if d := cmp.Diff(inType, sortedKeys(fieldCases[k.collection].fields)); d != "" {
			t.Errorf("%s: cases: %s", k.collection, d)
		}
		for name, c := range fieldCases[k.collection].fields {
			if len(c.pass) == 0 || len(c.fail) == 0 {
				t.Errorf("%s.%s has %d cases that pass and %d that fail", k.collection, name, len(c.pass), len(c.fail))
			}
			for _, v := range k.fields[name].Enum {
				if !slices.ContainsFunc(append(c.pass, c.fail...), func(s string) bool { return strings.Contains(s, mustJSON(v)) }) {
					t.Errorf("%s.%s: no case has %q", k.collection, name, v)
				}
			}
		}
	}
}

// TestNumbersOfFieldsEqualModels: the numbers in package fields, which imports nothing, are model's.
func TestNumbersOfFieldsEqualModels(t *testing.T) {
	for _, x := range []struct {
		object any
		field  string
		most   int
	}{
		{api.Network{}, "pktTag", model.MaxVNI},
		{api.NetProfile{}, "DSCP", model.MaxDSCP},
		{api.NetProfile{}, "burst", model.MaxBurst},
		{api.NetProfile{}, "receiveBurst", model.MaxBurst},
		{api.NetworkPolicy{}, "order", model.MaxOrder},
		{api.Bgp{}, "maxPrefixes", model.MaxBgpPrefixes},
	} {
		if f := fields.Of(x.object)[x.field]; f.Max != x.most {
			t.Errorf("%T %s: at most %d, want %d", x.object, x.field, f.Max, x.most)
		}
	}
	for _, x := range []struct {
		object any
		field  string
		says   any
	}{
		{api.Global{}, "tenantPrefixes", model.MaxPrefixes},
		{api.Global{}, "generatedLabels", model.MaxLabelFilter},
		{api.Tenant{}, "sharedNetworks", model.MaxShared},
		{api.Bgp{}, "neighbors", model.MaxBgpRouters},
		{api.Bgp{}, "password", model.MaxBgpPassword},
		{api.Bgp{}, "password", model.PasswordKept},
		{api.NetworkPolicy{}, "rules", model.MaxNetworkPolicyRules},
		{api.NetworkPolicy{}, "rules", model.MaxRulePeers},
	} {
		if text := fields.Of(x.object)[x.field].Text(); !strings.Contains(text, fmt.Sprint(x.says)) {
			t.Errorf("%T %s does not say %v: %s", x.object, x.field, x.says, text)
		}
	}
}

// TestDescriptionIsWhatTheCodeSays: api/openapi.json, and fields.md, no-effect.md and rest.md of
// docs/reference are what the code says. Run with -update to write them.
func TestDescriptionIsWhatTheCodeSays(t *testing.T) {
	f := serve(t, 0)
	description := f.must("GET", "/openapi.json", "")
	if !json.Valid([]byte(description)) {
		t.Error("the description is not JSON")
	}
	p := &pagetest.Page{
		Name: "fields.md", Command: updateFields, Title: "Fields of the objects",
		Purpose: "On this page you look up what each field of an object may hold, in YAML files and in the REST interface.",
	}
	p.Printf("\nNames that a field refers to are names of the same tenant. A field that is not required may be left out.\n")
	for _, k := range collections() {
		p.Printf("\n## %s\n", k.collection)
		if text := strings.TrimPrefix(noEffectText(k.collection, ""), "; "); text != "" {
			p.Printf("\nNo effect in this version: %s.\n", text)
		}
		var rows [][]string
		for _, name := range sortedKeys(k.fields) {
			x, idle := k.fields[name], noEffectText(k.collection, name)
			if x.Required {
				name += " (required)"
			}
			values := strings.TrimPrefix(strings.TrimPrefix(x.Text(), x.Description), "; ")
			rows = append(rows, []string{name, strings.TrimPrefix(x.Description+idle, "; "), values})
		}
		p.Table([]string{"Field", "Meaning", "What it may hold"}, rows...)
	}
	p.Check(t, *update)
	noEffectPage().Check(t, *update)
	restPage(t, description).Check(t, *update)
	const path = "../../../api/openapi.json"
	if *update {
		if err := os.WriteFile(path, []byte(description), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(description, string(have)); d != "" {
		t.Errorf("%s is out of date; run with -update:\n%s", path, d)
	}
}

// noEffectPage is the users' page of what is accepted without effect.
func noEffectPage() *pagetest.Page {
	p := &pagetest.Page{
		Name: "no-effect.md", Command: updateFields, Title: "What has no effect yet",
		Purpose: "On this page you look up which settings Contiv accepts and stores, although they change nothing in this version.",
	}
	p.Printf("%s", "\nFiles and scripts of an earlier cluster keep working, and each use is reported:\n\n"+
		"- The REST interface answers with a header `Warning: 299 - \"...\"`, and results of `apply` have the field `warnings`.\n"+
		"- netctl prints `warning: ...` on standard error.\n"+
		"- The hosts in the last column show a problem that begins with `no effect:` in their status.\n"+
		"- netmaster and netplugin log a warning at start for each of their flags without effect. The help text of such a flag says so.\n")
	var rows [][]string
	for _, n := range model.NoEffects("") {
		rows = append(rows, []string{n.Kind, stdcmp.Or(n.Field, "all"), stdcmp.Or(n.Value, "any"), n.Text, stdcmp.Or(n.Hosts, "none")})
	}
	p.Table([]string{"Object", "Field", "Value", "What to know", "Hosts that show it"}, rows...)
	return p
}
