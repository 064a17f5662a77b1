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
	ipv6        = `[0-9a-fA-F:.]*:[0-9a-fA-F:.]*`
	length6     = `(12[0-8]|1[01][0-9]|[1-9]?[0-9])`
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
	return pattern(49, `^(`+ipv4+`(/(3[0-2]|[12]?[0-9]))?|`+ipv6+`(/`+length6+`)?)$`)
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

// effectiveName is, in rules of an object as a whole, the name that it gives: the field of its
// spec, or its own.
func effectiveName(field string) string {
	return fmt.Sprintf("(has(self.spec.%[1]s) ? self.spec.%[1]s : self.metadata.name)", field)
}

func count(what string) column {
	return column{strings.ToUpper(what[:1]) + what[1:], "integer", ".status." + what}
}

// status is the schema of Status. Its conditions have the limits of metav1.Condition.
func status() props {
	amount := func(text string) props {
		return described(props{"type": "integer", "format": "int64", "minimum": 0}, text)
	}
	text := func(most int, text string) props { return described(props{"type": "string", "maxLength": most}, text) }
	name := func(most int, text string) props {
		return described(props{"type": "string", "minLength": 1, "maxLength": most, "pattern": `^[A-Za-z]([A-Za-z0-9_,:./-]*[A-Za-z0-9_])?$`}, text)
	}
	condition := object(props{
		"type":               name(316, Ready),
		"status":             described(enum("True", "False", "Unknown"), "whether the cluster has what the object says"),
		"reason":             name(1024, "why, in one word"),
		"message":            text(32768, "why, in a sentence that says what to do"),
		"observedGeneration": amount("metadata.generation of the spec that this is about"),
		"lastTransitionTime": described(props{"type": "string", "format": "date-time"}, "when the status changed last"),
	}, []string{"type", "status", "reason", "message", "lastTransitionTime"}, nil)
	return described(props{"type": "object", "properties": props{
		"observedGeneration": amount("metadata.generation of the spec that this is about"),
		"pktTag":             amount("VLAN id or VNI that the network has"),
		"networks":           amount("how many networks it has"),
		"groups":             amount("how many groups it has, or have it"),
		"rules":              amount("how many rules of it are in force"),
		"endpoints":          amount("how many endpoints it has, or have it"),
		"key":                text(256, "name of what the object stands for, with its tenant's: blue:web"),
		"owner":              text(64, "whose that is: kubernetes, or user for what was made by REST"),
		"conditions":         described(byKey(described(condition, "a condition of the object"), "type", 8), "what became of the object"),
	}}, "what became of the object; netmaster writes it")
}

// definition is the kind's CustomResourceDefinition.
func (k Kind) definition() props {
	columns := []props{}
	add := func(c column) {
		columns = append(columns, props{"name": c.name, "type": c.typ, "jsonPath": c.path})
	}
	ready := `.status.conditions[?(@.type=="` + Ready + `")]`
	add(column{"Key", "string", ".status.key"})
	for _, c := range k.columns {
		add(c)
	}
	add(column{"Owner", "string", ".status.owner"})
	add(column{Ready, "string", ready + ".status"})
	add(column{"Reason", "string", ready + ".reason"})
	add(column{"Age", "date", ".metadata.creationTimestamp"})
	columns = append(columns, props{"name": "Message", "type": "string", "jsonPath": ready + ".message", "priority": 1}) // kubectl get -o wide
	whole := object(props{
		"apiVersion": props{"type": "string"}, "kind": props{"type": "string"}, "metadata": props{"type": "object"},
		"spec": described(object(k.spec, k.needs, k.checks), "what is to be"), "status": status(),
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
	var all []props
	for _, k := range Kinds() {
		all = append(all, k.definition())
	}
	return manifest(all...)
}

// manifest is objects as YAML.
func manifest(all ...props) ([]byte, error) {
	var b strings.Builder
	b.WriteString("# Made of internal/netmaster/kubernetes/objects by go test ./internal/netmaster/kubernetes/objects -update: change it there.\n")
	for i, o := range all {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(text)
	}
	return []byte(b.String()), nil
}
