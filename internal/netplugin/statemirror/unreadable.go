package statemirror

import "github.com/contiv/netplugin/v2/internal/datapath/compile"

// unreadable are the records of a mirror that cannot be read, with why; the objects
// that they described count as missing, here and in netmaster.
type unreadable map[any]compile.Problem

// note takes what came of reading a record, whose typed key may be nil.
func (u unreadable) note(key any, record string, err error) {
	switch {
	case key == nil:
	case err != nil:
		u[key] = compile.Problem{Object: "record " + record, Text: "it cannot be read, so its object counts as missing until it is deleted or written again: " + err.Error()}
	default:
		delete(u, key)
	}
}
