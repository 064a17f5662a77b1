package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// property is as much of a schema as values have.
type property struct {
	Description          string
	Properties           map[string]property
	AdditionalProperties any
}

// TestValuesAreDescribed: the schema has each value that there is, and no other one, with the
// comment of values.yaml as its description; it refuses keys that are not there.
func TestValuesAreDescribed(t *testing.T) {
	var schema property
	text, err := os.ReadFile(chart + "/values.schema.json")
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	var values yaml.Node
	if text, err = os.ReadFile(chart + "/values.yaml"); err == nil {
		err = yaml.Unmarshal(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // Helm's own
	var check func(path string, is *yaml.Node, p property)
	check = func(path string, is *yaml.Node, p property) {
		if len(p.Properties) == 0 { // a value, or one whose keys are users'
			return
		}
		if p.AdditionalProperties != false {
			t.Errorf("%s: keys that are not there are not refused", path)
		}
		left := p.Properties
		for i := 0; i < len(is.Content); i += 2 {
			key, name := is.Content[i], is.Content[i].Value
			sub, there := left[name]
			delete(left, name)
			comment := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", "")), " ")
			if !there || comment == "" || sub.Description != comment {
				t.Errorf("%s%s: the schema says %q, values.yaml %q", path, name, sub.Description, comment)
			}
			check(path+name+".", is.Content[i+1], sub)
		}
		for name := range left {
			t.Errorf("%s%s is in the schema, and not in values.yaml", path, name)
		}
	}
	check("", values.Content[0], schema)
}
