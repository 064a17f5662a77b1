package netctl

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// Every command that prints a list takes -o with the same forms. A command prints a list
// if its name says so, or if it prints a table: that is what printItems is for.
func TestEveryListTakesEveryForm(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls := regexp.MustCompile(`\bprintTable\(`).FindAll(text, -1)
		if len(calls) > 0 && !slices.Contains([]string{"output.go", "list.go"}, file) && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s prints a table by itself: a list is printed by printItems, with listFlags", file)
		}
	}

	dir := filepath.Join(t.TempDir(), "pki")
	if _, err := pki.Init(dir); err != nil {
		t.Fatal(err)
	}
	args := map[string][]string{"policy rule-ls": {"p"}, "app-profile group-ls": {"shop"}, "get": {"groups"}, "pki show": {dir}}
	m := newFakeMaster(t)
	for collection, object := range map[string]string{
		"policys":        `{"key":"default:p","policyName":"p","tenantName":"default"}`,
		"rules":          `{"key":"default:p:1","policyName":"p","tenantName":"default","ruleId":"1","direction":"in","action":"allow"}`,
		"appProfiles":    `{"key":"default:shop","appProfileName":"shop","tenantName":"default","endpointGroups":["web"]}`,
		"endpointGroups": `{"key":"default:web","groupName":"web","tenantName":"default","networkName":"n"}`,
		"hosts":          `{"name":"h1","state":"alive","tables":{"a":{"entries":1,"capacity":2}}}`,
		"endpoints":      `{"key":"default:n:e1","endpointID":"e1"}`,
		"tokens":         `{"id":"t1","name":"anna","role":"viewer"}`,
		"pending":        `{"id":"c1","left":5}`,
	} {
		key := regexp.MustCompile(`[^"]+`).FindAllString(object, 4)[3]
		m.store(collection, key, object)
	}
	m.refuse["GET /api/v1/cluster/members"] = refusal{200, `{"members":[{"name":"m1","role":"voter"}],"warnings":["w"]}`}
	m.refuse["GET /api/v1/analysis/assertions"] = refusal{200, `[{"assertion":{"assertionName":"a","tenantName":"default","verdict":"never","from":"any","to":"group:web"},"state":"holds"}]`}
	tried := 0
	var walk func(c *command, words []string)
	walk = func(c *command, words []string) {
		for _, s := range c.subs {
			walk(s, append(slices.Clone(words), s.name))
		}
		names := append([]string{c.name}, c.aliases...)
		isList := slices.ContainsFunc(names, func(n string) bool {
			return n == "ls" || n == "list" || n == "get" || n == "pending" || strings.HasSuffix(n, "-ls")
		})
		path := strings.Join(words, " ")
		if c.subs != nil || !isList && !c.lists {
			return
		}
		if !c.lists {
			t.Errorf("%s prints a list, and does not take -o", path)
			return
		}
		tried++
		for _, form := range forms {
			got := netctl(t, m.url, append(append(slices.Clone(words), "-o", form), args[path]...)...)
			if got.code != ExitOK || got.errOut != "" {
				t.Errorf("%s -o %s: %+v", path, form, got)
				continue
			}
			var v any
			switch err := yaml.Unmarshal([]byte(got.out), &v); form {
			case formJSON, formYAML: // JSON is YAML
				if err != nil || got.out == "" && form == formJSON {
					t.Errorf("%s -o %s: %v\n%s", path, form, err, got.out)
				}
			case formTable, formWide:
				if !strings.Contains(got.out, "---") {
					t.Errorf("%s -o %s prints no table: %s", path, form, got.out)
				}
			}
		}
		short := netctl(t, m.url, append(append(slices.Clone(words), "-q"), args[path]...)...)
		name := netctl(t, m.url, append(append(slices.Clone(words), "-o", "name"), args[path]...)...)
		if short.out != name.out {
			t.Errorf("%s: -q prints %q, -o name %q", path, short.out, name.out)
		}
		if got := netctl(t, m.url, append(append(slices.Clone(words), "-o", "xml"), args[path]...)...); got.code != ExitUsage || !strings.Contains(got.errOut, "must be one of table, wide, json, yaml, name") {
			t.Errorf("%s -o xml: %+v", path, got)
		}
	}
	walk(testTree(), nil)
	if tried < 18 {
		t.Errorf("only %d lists were found", tried)
	}
}

// What is no document for apply is shown as YAML too, with the fields that JSON has.
func TestHostsAreShownAsYAML(t *testing.T) {
	m := newFakeMaster(t)
	m.store("hosts", "h1", `{"name":"h1","state":"alive","version":"2.10","problems":{"network blue:n":"no\u0007room"}}`)
	got := netctl(t, m.url, "host", "ls", "-o", "yaml")
	for _, want := range []string{"- name: h1\n", `version: "2.10"`, `network blue:n: "no\aroom"`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("it has no %q: %s", want, got.out)
		}
	}
}
