package model

import "strings"

// NoEffect is something that is accepted and kept, and does nothing in this
// version: a kind of object, a field, or one value of a field. The answer to
// a write that sets it carries Text as a warning, the objects' and commands'
// documentation says it, and the hosts concerned show it as a problem. What
// gets an effect leaves the list of its kind; what comes without one enters it.
type NoEffect struct {
	Kind  string // collection, such as "netprofiles"; register fills it in
	Field string // JSON name; "" = the whole object
	Value string // the value that has no effect; "" = any, if the field is set
	Text  string // one sentence without full stop
	Hosts string // which hosts show it as a problem; "" = none, since none would behave differently
	// ByDriver: it depends on a host's data plane, which says so itself.
	ByDriver bool
	set      func(object any) bool
}

// NoEffectPrefix begins the text of problems that tell of a NoEffect.
const NoEffectPrefix = "no effect: "

// Object names what has no effect for people, such as "endpointGroups blue:web
// netProfile"; key is the object's.
func (n NoEffect) Object(key string) string {
	return strings.TrimRight(n.Kind+" "+key+" "+n.Field+" "+n.Value, " ")
}

// SetIn reports whether an object of this package has it set.
func (n NoEffect) SetIn(object any) bool { return n.set(object) }

// in builds a set function for one type of object.
func in[T any](set func(T) bool) func(any) bool {
	return func(object any) bool {
		v, ok := object.(T)
		return ok && set(v)
	}
}

// NoEffects returns the table, or one collection's part of it.
func NoEffects(kind string) []NoEffect {
	var out []NoEffect
	for _, k := range Kinds() {
		if kind == "" || kind == k.Collection {
			out = append(out, k.NoEffects...)
		}
	}
	return out
}

// WithoutEffect returns what an object of this package has set without effect.
func WithoutEffect(object any) []NoEffect {
	var out []NoEffect
	for _, n := range NoEffects("") {
		if n.SetIn(object) {
			out = append(out, n)
		}
	}
	return out
}
