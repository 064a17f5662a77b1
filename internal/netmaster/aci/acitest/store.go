package acitest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Object is a managed object; it is not changed once it is made.
type Object struct {
	Class string
	Props map[string]string
	Born  int // the number of the request that made it
}

// Tree is objects by their DN.
type Tree map[string]Object

// Change is what a request did to one object.
type Change struct {
	DN, Class, What string // What is "created", "modified" or "deleted"
}

// body is an object of a request.
type body struct {
	Attributes map[string]string `json:"attributes"`
	Children   []map[string]body `json:"children"`
}

// tx is a request that is being done on a copy.
type tx struct {
	tree    Tree
	n       int
	changes []Change
}

// post does what a request's body says, below dn.
func (t *tx) post(dn string, request map[string]body) error {
	if len(request) != 1 {
		return refuse(400, "a request is one object")
	}
	for class, b := range request {
		if model[class] == nil {
			return refuse(122, "unknown managed object class %s", class)
		}
		if own := b.Attributes["dn"]; own != "" && (dn == "" || own != dn && strings.HasPrefix(own, dn+"/")) {
			dn = own
		}
		if at, _, err := locate(dn); err != nil {
			return err
		} else if at != class && within(model[class].parents, at) { // posted to its parent
			rn, err := rnOf(class, b.Attributes)
			if err != nil {
				return err
			}
			dn += "/" + rn
		}
		return t.put(dn, class, b)
	}
	return nil
}

// put does what is said of one object, and of those below it.
func (t *tx) put(dn, class string, b body) error {
	at, naming, err := locate(dn)
	if err != nil {
		return err
	}
	if at != class {
		return refuse(104, "Invalid DN %s for class %s", dn, class)
	}
	c := model[class]
	props := map[string]string{}
	for k, v := range b.Attributes {
		switch k {
		case "dn":
			if v != dn {
				return refuse(105, "dn %s is not %s", v, dn)
			}
		case "rn":
			if p := pieces(dn); v != "" && v != p[len(p)-1] {
				return refuse(105, "rn %s is not that of %s", v, dn)
			}
		case "status":
		default:
			check, known := c.props[k]
			if !known {
				return refuse(121, "unknown property value of %s for class %s", k, class)
			}
			kept, ok := check(v)
			if !ok && (v != "" || k == "name") {
				return refuse(801, "property %s of %s failed validation for value '%s'", k, dn, v)
			}
			if name, names := naming[k]; names && name != v {
				return refuse(105, "property %s of %s must be %s", k, dn, name)
			}
			props[k] = kept
		}
	}
	for k, v := range naming {
		kept, ok := c.props[k](v)
		if !ok {
			return refuse(801, "property %s of %s failed validation for value '%s'", k, dn, v)
		}
		props[k] = kept
	}
	old, exists := t.tree[dn]
	status := strings.ReplaceAll(b.Attributes["status"], " ", "")
	switch {
	case status == "deleted":
		if c.fixed && exists {
			return refuse(120, "%s can not be deleted", dn)
		}
		t.deleteTree(dn)
		return nil
	case status == "created" && exists:
		return refuse(103, "object %s already exists", dn)
	case status == "modified" && !exists:
		return refuse(102, "configured object %s not found", dn)
	case status != "" && status != "created" && status != "modified" && status != "created,modified":
		return refuse(801, "property status of %s failed validation for value '%s'", dn, status)
	}
	if _, ok := t.tree[above(dn)]; !ok && dn != "uni" {
		return refuse(102, "parent of %s not found", dn)
	}
	if err := t.write(dn, class, old, exists, props); err != nil {
		return err
	}
	for _, child := range b.Children {
		for class, b := range child {
			if model[class] == nil {
				return refuse(122, "unknown managed object class %s", class)
			}
			if !within(model[class].parents, at) {
				return refuse(122, "%s is not below %s", class, at)
			}
			below := b.Attributes["dn"]
			if below == "" {
				rn, err := rnOf(class, b.Attributes)
				if err != nil {
					return err
				}
				below = dn + "/" + rn
			}
			if above(below) != dn {
				return refuse(105, "%s is not below %s", below, dn)
			}
			if err := t.put(below, class, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// write keeps an object with what it has by itself.
func (t *tx) write(dn, class string, old Object, exists bool, props map[string]string) error {
	c := model[class]
	o := Object{Class: class, Props: map[string]string{}, Born: t.n}
	maps.Copy(o.Props, c.defaults)
	what := "created"
	if exists {
		o, what = Object{class, maps.Clone(old.Props), old.Born}, "modified"
	}
	for k, v := range props {
		if v == "" && c.defaults[k] != "" {
			v = c.defaults[k]
		}
		o.Props[k] = v
	}
	if class == "vzEntry" {
		if err := checkPorts(dn, o.Props); err != nil {
			return err
		}
	}
	if exists && maps.Equal(o.Props, old.Props) {
		return nil
	}
	t.tree[dn] = o
	t.changes = append(t.changes, Change{dn, class, what})
	if !exists {
		for child := range strings.FieldsSeq(c.implicit) {
			if err := t.write(dn+"/"+model[child].rn, child, Object{}, false, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPorts checks what a filter's entry says of ports.
func checkPorts(dn string, p map[string]string) error {
	for _, side := range []string{"s", "d"} {
		from, to := p[side+"FromPort"], p[side+"ToPort"]
		if from == "unspecified" && to == "unspecified" {
			continue
		}
		if p["prot"] != "tcp" && p["prot"] != "udp" {
			return refuse(182, "Validation failed: %s: ports need protocol tcp or udp, and ether type IP", dn)
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA == nil && errB == nil && a > b {
			return refuse(182, "Validation failed: %s: port %s is behind %s", dn, from, to)
		}
	}
	if p["prot"] != "unspecified" && !strings.HasPrefix(p["etherT"], "ip") {
		return refuse(182, "Validation failed: %s: a protocol needs ether type IP", dn)
	}
	return nil
}

// deleteTree deletes an object and all below it.
func (t *tx) deleteTree(dn string) {
	for _, at := range slices.Sorted(maps.Keys(t.tree)) {
		if at == dn || strings.HasPrefix(at, dn+"/") {
			t.changes = append(t.changes, Change{at, t.tree[at].Class, "deleted"})
			delete(t.tree, at)
		}
	}
}

// response returns an object as answers have it, with computed properties.
func (t Tree) response(dn string) map[string]string {
	o := t[dn]
	out := maps.Clone(o.Props)
	out["dn"], out["status"] = dn, ""
	if c := model[o.Class]; c.target != "" {
		out["state"] = "missing-target"
		for prop, v := range o.Props {
			if strings.HasPrefix(prop, "tn") {
				if to := t.Resolve(dn, c.target+v); to != "" {
					out["state"], out["tDn"] = "formed", to
				}
			}
		}
	}
	return out
}

// Resolve returns the DN of what a relation in the tenant of dn refers to by an RN:
// in that tenant, else in tenant common; "" when there is none.
func (t Tree) Resolve(dn, rn string) string {
	for _, tenant := range []string{strings.Join(pieces(dn)[:2], "/"), "uni/tn-common"} {
		if _, ok := t[tenant+"/"+rn]; ok {
			return tenant + "/" + rn
		}
	}
	return ""
}
