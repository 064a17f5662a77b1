package fields

import (
	"reflect"
	"strings"
)

// Field describes a field of an object. Its texts are phrases without full stop.
type Field struct {
	Description string   // what it is for
	Range       string   // what it may hold beyond that
	Default     string   // what it means that it is empty, or 0; "" = nothing special, or Allows says it
	Enum        []string // the values, if there are few
	Min, Max    int      // of an integer; both zero = none
	Required    bool
}

// Of returns the fields of an object on the wire, or of a pointer to one, by their JSON
// names; nil = the type has no descriptions.
func Of(object any) map[string]Field {
	t := reflect.TypeOf(object)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return byType[t.Name()]
}

// Text is all that there is to say, for references.
func (f Field) Text() string { return join(f.Description, f.Range, f.unset("empty = ", "0 = ")) }

// Short leaves out what the field may hold, for help texts and schemas, which say or check
// that themselves. More is said behind it.
func (f Field) Short(more string) string {
	if f.Default == "none" { // goes without saying
		f.Default = ""
	}
	return join(f.Description, f.unset("not given: ", "not given: "), more)
}

func (f Field) unset(text, number string) string {
	switch {
	case f.Default == "":
		return ""
	case f.Max > 0:
		return number + f.Default
	}
	return text + f.Default
}

func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "; ")
}
