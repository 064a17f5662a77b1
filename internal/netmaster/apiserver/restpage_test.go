package apiserver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

// restPage lists the paths of the description; a path that all collections have, once.
func restPage(t *testing.T, description string) *pagetest.Page {
	t.Helper()
	var d struct {
		Paths map[string]map[string]struct{ Summary string }
	}
	if err := json.Unmarshal([]byte(description), &d); err != nil {
		t.Fatal(err)
	}
	type entry struct{ path, summary string }
	methods := map[entry][]string{}
	for path, ops := range d.Paths {
		for method, op := range ops {
			e := entry{path, op.Summary}
			for _, k := range collections() {
				switch c := k.collection; path {
				case "/api/v1/" + c, "/api/v1/" + c + "/{key}", "/api/v1/inspect/" + c + "/{key}":
					e = entry{strings.Replace(path, c, "COLLECTION", 1), strings.Replace(op.Summary, c, "COLLECTION", 1)}
				}
			}
			if method = strings.ToUpper(method); !slices.Contains(methods[e], method) {
				methods[e] = append(methods[e], method)
			}
		}
	}
	var names []string
	for _, k := range collections() {
		names = append(names, "`"+k.collection+"`")
	}
	var rows [][]string
	for e, of := range methods {
		slices.Sort(of)
		rows = append(rows, []string{e.path, strings.Join(of, ", "), e.summary})
	}
	slices.SortFunc(rows, slices.Compare)
	for _, r := range rows {
		r[0] = "`" + r[0] + "`"
	}
	p := &pagetest.Page{
		Name: "rest.md", Command: updateFields, Title: "Paths of the REST interface",
		Purpose: "On this page you look up the paths that netmaster serves; [REST](../how-to/rest.md) explains their use.",
	}
	p.Printf("\nCOLLECTION is one of %s. [Fields](fields.md) lists what their objects hold. [openapi.json](../../api/openapi.json) has requests and answers.\n", strings.Join(names, ", "))
	p.Table([]string{"path", "methods", "meaning"}, rows...)
	return p
}
