package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Target is what a reference points at.
type Target struct {
	Kind   string           `json:"kind"` // "group", "network", "policy", "netprofile" or "extcontracts"
	Tenant model.TenantName `json:"tenant"`
	Name   string           `json:"name"`
}

// Scope is the scope of the target's references.
func (t Target) Scope() string {
	return allocOf("ref/"+t.Kind, t.Tenant) + store.Segment(t.Name) + "/"
}

// GroupRefs is the scope that a group touches which begins to name many things of its
// tenant at once, in place of each one's own. No rows are under it: who looks whether
// groups refer to something observes it besides (docs/design/store.md, Cost).
func GroupRefs(t model.TenantName) string { return allocOf("grouprefs", t) }

// RefKey says that From, of kind Kind, refers to Target.
type RefKey struct {
	Target Target `json:"target"`
	Kind   string `json:"kind"` // "endpoint", "rule", "group", "service" or "appprofile"
	From   string `json:"from"` // its key as text
}

// Reference is the row of a RefKey.
type Reference struct{ RefKey }

// References holds who refers to what, so that in-use checks are O(1).
var References = declare(TableSpec[RefKey, Reference]{
	Noun: "reference", Version: 1,
	Path: "state/alloc/ref/*/*/*/*/*",
	Parse: func(n []string) (RefKey, bool) {
		return RefKey{Target{n[0], model.TenantName(n[1]), n[2]}, n[3], n[4]}, true
	},
	KeyOf: func(r Reference) RefKey { return r.RefKey },
	Scope: func(k RefKey) string { return k.Target.Scope() },
	Name:  func(k RefKey) string { return k.Kind + "/" + store.Segment(k.From) },
})
