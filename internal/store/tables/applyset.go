package tables

import "github.com/contiv/netplugin/v2/internal/store"

// SetMemberKey names an object in a set of applied documents.
type SetMemberKey struct {
	Set       string
	Kind, Key string
}

// SetMember says that applying a set of documents created an object. It holds for the
// object whose row was there when the member was written: one that was created later
// under the same key is no member.
type SetMember struct {
	SetMemberKey
	Row string `json:"row"` // the object's key in the store
}

// SetMembersOf is the scope of a set's members.
func SetMembersOf(set string) string { return AllocPrefix + "sets/" + store.Segment(set) + "/" }

// SetMembers holds what sets of applied documents created.
var SetMembers = declare(TableSpec[SetMemberKey, SetMember]{
	Noun: "member of set", Version: 1,
	Path:     "state/alloc/sets/*/*/*",
	Parse:    func(n []string) (SetMemberKey, bool) { return SetMemberKey{n[0], n[1], n[2]}, true },
	KeyOf:    func(m SetMember) SetMemberKey { return m.SetMemberKey },
	Show:     func(k SetMemberKey) string { return k.Set + " " + k.Kind + " " + k.Key },
	Scope:    func(k SetMemberKey) string { return SetMembersOf(k.Set) },
	Unlisted: true, // read by Range: what is read is compared again
	Name:     func(k SetMemberKey) string { return store.Segment(k.Kind) + "/" + store.Segment(k.Key) },
})
