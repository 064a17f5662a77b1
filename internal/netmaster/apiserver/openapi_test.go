package apiserver

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestOpenAPI: every reference leads somewhere, every operation has an id of its
// own and declares the parameters of its path, and each collection has its six
// routes.
func TestOpenAPI(t *testing.T) {
	f := serve(t, 0)
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Summary     string `json:"summary"`
			Parameters  []struct {
				Name     string `json:"name"`
				In       string `json:"in"`
				Required bool   `json:"required"`
			} `json:"parameters"`
			RequestBody any            `json:"requestBody"`
			Responses   map[string]any `json:"responses"`
		} `json:"paths"`
	}
	text := f.must("GET", "/openapi.json", "")
	if err := json.Unmarshal([]byte(text), &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatalf("%q, %v", doc.OpenAPI, err)
	}
	var tree any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	checkRefs(t, tree, tree)
	ids := map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range item {
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" || op.Responses["200"] == nil || op.Responses["default"] == nil {
				t.Errorf("%s %s: %+v", method, path, op)
			}
			ids[op.OperationID] = true
			declared := 0
			for _, p := range op.Parameters {
				if p.In == "path" && p.Required && strings.Contains(path, "{"+p.Name+"}") {
					declared++
				}
			}
			if want := strings.Count(path, "{"); declared != want {
				t.Errorf("%s %s declares %d of %d parameters", method, path, declared, want)
			}
			if (method == "post" || method == "put") != (op.RequestBody != nil) {
				t.Errorf("%s %s: body %v", method, path, op.RequestBody)
			}
		}
	}
	for _, k := range collections() {
		base := "/api/v1/" + k.collection
		if n := len(doc.Paths[base]) + len(doc.Paths[base+"/{key}"]) + len(doc.Paths["/api/v1/inspect/"+k.collection+"/{key}"]); n != 6 {
			t.Errorf("%s has %d routes", k.collection, n)
		}
	}
}

// checkRefs follows all references of a document.
func checkRefs(t *testing.T, root, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			at := root
			for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
				m, _ := at.(map[string]any)
				at = m[part]
			}
			if at == nil {
				t.Errorf("%s leads nowhere", ref)
			}
		}
		for _, x := range v {
			checkRefs(t, root, x)
		}
	case []any:
		for _, x := range v {
			checkRefs(t, root, x)
		}
	}
}
