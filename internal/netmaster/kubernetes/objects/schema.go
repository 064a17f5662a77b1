package objects

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/internal/fields"
)

// props are the properties of an object in a schema.
type props = map[string]any

// check is a rule in CEL, and what is said where it does not hold.
type check struct{ rule, message string }

// column is one of kubectl's.
type column struct{ name, typ, path string }

const (
	label       = `[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?`
	namePattern = `^` + label + `(\.` + label + `)*$`
	keyPattern  = `^` + label + `(\.` + label + `)*:` + label + `(\.` + label + `)*$`
	octet       = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	ipv4        = octet + `(\.` + octet + `){3}`
)

// describe prefixes the properties' descriptions with the texts of package fields.
func describe(object any, of props) props {
	all := fields.Of(object)
	for name, p := range of {
		p := p.(props) //nolint:forcetypeassert // all are
		more, _ := p["description"].(string)
		described(p, all[name].Short(more))
	}
	return of
}

// missingPeer describes peers that a rule may name before they exist.
const missingPeer = "one that does not exist is nobody"

func pattern(most int, expr string, more ...string) props {
	return described(props{"type": "string", "minLength": 1, "maxLength": most, "pattern": expr}, strings.Join(more, "; "))
}

func named(more string) props { return pattern(64, namePattern, more) }

func tenantName() props {
	p := named("")
	p["default"] = "default"
	return p
}

func tag() props { return pattern(128, namePattern, "has no effect yet") }

func peerAddress() props {
	return pattern(49, `^[0-9a-fA-F:.]+(/[0-9]{1,3})?$`)
}

func number(least, most int) props {
	return props{"type": "integer", "minimum": least, "maximum": most}
}

func boolean() props { return props{"type": "boolean"} }

func enum(values ...string) props { return props{"type": "string", "enum": values} }

func choice(usual string, values ...string) props {
	p := enum(values...)
	p["default"] = usual
	return p
}

func set(items props, most int) props {
	return props{"type": "array", "maxItems": most, "items": items, "x-kubernetes-list-type": "set"}
}

func byKey(items props, key string, most int) props {
	return props{"type": "array", "maxItems": most, "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{key}}
}

func object(of props, needs []string, checks []check) props {
	p := props{"type": "object", "properties": of}
	if len(needs) > 0 {
		p["required"] = needs
	}
	if len(checks) > 0 {
		var all []props
		for _, c := range checks {
			all = append(all, props{"rule": c.rule, "message": c.message})
		}
		p["x-kubernetes-validations"] = all
	}
	return p
}

func described(p props, text string) props {
	if text != "" {
		p["description"] = text
	}
	return p
}

// fixed is that a field cannot change.
func fixed(field string) check {
	return check{
		fmt.Sprintf("has(self.%[1]s) == has(oldSelf.%[1]s) && (!has(self.%[1]s) || self.%[1]s == oldSelf.%[1]s)", field),
		field + " cannot change: delete the object and create it again",
	}
}

// nameRule is that the object's own name, where no other is given, is not too long.
func nameRule(field string) check {
	return check{
		fmt.Sprintf("has(self.spec.%s) || self.metadata.name.size() <= 64", field),
		"the object's name has more than 64 characters: give spec." + field,
	}
}

func count(what string) column {
	return column{strings.ToUpper(what[:1]) + what[1:], "integer", ".status." + what}
}

// status is the schema of Status.
func status() props {
	amount := func() props { return props{"type": "integer", "format": "int64"} }
	text := func() props { return props{"type": "string"} }
	return props{"type": "object", "properties": props{
		"observedGeneration": amount(), "pktTag": amount(), "networks": amount(), "groups": amount(), "rules": amount(), "endpoints": amount(),
		"key":   described(text(), "of what the object stands for"),
		"owner": described(text(), "of that: kubernetes, or user for what was made by REST"),
		"conditions": byKey(object(props{
			"type": text(), "status": enum("True", "False", "Unknown"), "reason": text(), "message": text(),
			"observedGeneration": amount(), "lastTransitionTime": props{"type": "string", "format": "date-time"},
		}, []string{"type", "status", "reason", "message", "lastTransitionTime"}, nil), "type", 8),
	}}
}

// definition is the kind's CustomResourceDefinition.
func (k Kind) definition() props {
	columns := []props{}
	add := func(c column) {
		columns = append(columns, props{"name": c.name, "type": c.typ, "jsonPath": c.path})
	}
	add(column{"Key", "string", ".status.key"})
	for _, c := range k.columns {
		add(c)
	}
	add(column{"Owner", "string", ".status.owner"})
	add(column{"Kept", "string", `.status.conditions[?(@.type=="` + Kept + `")].status`})
	add(column{"Reason", "string", `.status.conditions[?(@.type=="` + Kept + `")].reason`})
	add(column{"Age", "date", ".metadata.creationTimestamp"})
	whole := object(props{
		"apiVersion": props{"type": "string"}, "kind": props{"type": "string"}, "metadata": props{"type": "object"},
		"spec": object(k.spec, k.needs, k.checks), "status": status(),
	}, []string{"spec"}, k.whole)
	return props{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": props{"name": k.Plural + "." + GroupVersion.Group},
		"spec": props{
			"group": GroupVersion.Group, "scope": "Cluster",
			"names": props{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural, "singular": k.Singular, "shortNames": []string{k.Short}, "categories": []string{"contiv"}},
			"versions": []props{{
				"name": GroupVersion.Version, "served": true, "storage": true, "subresources": props{"status": props{}},
				"additionalPrinterColumns": columns, "schema": props{"openAPIV3Schema": described(whole, k.text)},
			}},
		},
	}
}

// Definitions are the CustomResourceDefinitions of all kinds, as YAML.
func Definitions() ([]byte, error) {
	var b strings.Builder
	b.WriteString("# Made of internal/netmaster/kubernetes/objects by go test ./internal/netmaster/kubernetes/objects -update: change it there.\n")
	for _, k := range Kinds() {
		text, err := yaml.Marshal(k.definition())
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return []byte(b.String()), nil
}
