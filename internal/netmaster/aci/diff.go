package aci

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// op is one write of the APIC.
type op struct {
	dn     string
	class  string
	status string // "created", "modified", "deleted"; "" = whether it exists or not
	props  map[string]string
}

// difference is what turns what there is into what is wanted.
type difference struct {
	adds     []op // parents first
	removes  []op // what refers first; the topmost of what goes together
	problems []Problem
}

func (d *difference) empty() bool { return len(d.adds)+len(d.removes) == 0 }

// missing is how the APIC calls a relation to something that does not exist.
const missing = "missing-target"

// diff compares; outer are the references of want to others' contracts.
func diff(want, have tree, outer []externalReference) *difference {
	d := &difference{}
	wanted, blocked := maps.Clone(want), map[string]bool{}
	for _, o := range outer {
		d.judge(wanted, have, o)
	}
	for _, dn := range sorted(wanted) {
		w := wanted[dn]
		switch h, ok := have[dn]; {
		case blocked[parent(dn)] || w.refersTo(dn, blocked):
			blocked[dn] = true
		case !ok:
			d.adds = append(d.adds, op{dn, w.class, "created", w.props})
		case h.class != w.class:
			d.problem(dn, "is of class "+h.class+" at the APIC")
			blocked[dn] = true
		case classes[w.class].implicit:
			d.change(dn, w, h, "")
		case h.ours:
			d.change(dn, w, h, "modified")
		case classes[w.class].unmanaged == used:
			blocked[dn] = true // it is whole as it is
		case classes[w.class].unmanaged == refused && len(w.differs(h)) > 0, w.class == "fvAEPg", w.class == "vzBrCP", w.class == "vzFilter":
			d.problem(dn, "exists at the APIC and is not ours: it is left alone")
			blocked[dn] = true
		}
	}
	for dn := range blocked {
		if h, ok := have[dn]; ok && !h.ours {
			continue
		}
		delete(wanted, dn) // what is ours there goes
	}
	d.remove(wanted, have)
	d.problems = sortProblems(d.problems)
	return d
}

// judge takes a reference away that would be to another contract than the one
// that was meant, or tells that there is none.
func (d *difference) judge(wanted, have tree, o externalReference) {
	tenant, _, _ := strings.Cut(o.rel, "/ap-")
	own := tenant + "/brc-" + o.name
	_, there := have[own]
	_, will := wanted[own]
	switch {
	case own == o.dn && !there && !will:
		d.problems = append(d.problems, Problem{o.object, "external contract " + o.dn + " does not exist at the APIC"})
		delete(wanted, o.rel)
	case own != o.dn && (there || will):
		d.problems = append(d.problems, Problem{o.object, "external contract " + o.dn + " is hidden by one of the same name in the group's tenant"})
		delete(wanted, o.rel)
	case have[o.rel].state == missing:
		d.problems = append(d.problems, Problem{o.object, "external contract " + o.dn + " does not exist at the APIC"})
	}
}

// refersTo reports whether the relation o at dn is to something that is blocked.
func (o object) refersTo(dn string, blocked map[string]bool) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(dn, "uni/"), "/")
	tenant := "uni/" + name
	switch o.class {
	case "fvRsProv", "fvRsCons":
		return blocked[tenant+"/brc-"+o.props["tnVzBrCPName"]]
	case "vzRsSubjFiltAtt":
		return blocked[tenant+"/flt-"+o.props["tnVzFilterName"]]
	}
	return false
}

func (d *difference) problem(dn, text string) {
	d.problems = append(d.problems, Problem{dn, text})
}

// differs returns the properties of o that h has otherwise.
func (o object) differs(h object) map[string]string {
	out := map[string]string{}
	for k, v := range o.props {
		if !same(k, v, h.props[k]) {
			out[k] = v
		}
	}
	return out
}

func (d *difference) change(dn string, w, h object, status string) {
	if props := w.differs(h); len(props) > 0 {
		d.adds = append(d.adds, op{dn, w.class, status, props})
	}
}

// remove adds what is ours and not wanted. What has others' objects below it stays.
func (d *difference) remove(wanted, have tree) {
	held := map[string]string{} // with children of others
	for _, dn := range sorted(have) {
		if h := have[dn]; !h.ours && !classes[h.class].implicit {
			for up := parent(dn); up != ""; up = parent(up) {
				held[up] = dn
			}
		}
	}
	goes := map[string]bool{} // removed, with all below
	for _, dn := range sorted(have) {
		h := have[dn]
		_, stays := wanted[dn]
		switch {
		case goes[parent(dn)]:
			goes[dn] = true
		case stays || !h.ours || classes[h.class].implicit:
		case held[dn] != "":
			d.problem(dn, "is not wanted any more, and stays because "+held[dn]+" below it is not ours")
		default:
			goes[dn] = true
			d.removes = append(d.removes, op{dn: dn, class: h.class, status: "deleted"})
		}
	}
	slices.SortStableFunc(d.removes, func(a, b op) int { return cmp.Compare(classes[b.class].rank, classes[a.class].rank) })
}

// sorted returns the DNs, parents and objects of lower rank first.
func sorted(t tree) []string {
	depth := make(map[string]int, len(t))
	for dn := range t {
		for up := dn; up != ""; up = parent(up) {
			depth[dn]++
		}
	}
	return slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(classes[t[a].class].rank, classes[t[b].class].rank), cmp.Compare(depth[a], depth[b]), cmp.Compare(a, b))
	})
}
