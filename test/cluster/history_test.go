package cluster

import (
	"net/http"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// asked is a request for one object, by its place in the run's list.
type asked struct {
	object int
	method string // GET, PUT or DELETE, whatever the API calls it
	value  int    // that a PUT asks for; anyValue = whatever the server chooses
}

const anyValue = -1

// outcome is what is known of a request.
type outcome int

const (
	done    outcome = iota
	absent          // there is no such object
	refused         // nothing has changed
	unknown         // it may have been done, or will be, or not
	unsent          // it was never heard by anybody
)

func (o outcome) String() string {
	return [...]string{"done", "absent", "refused", "unknown", "unsent"}[o]
}

// got is an answer.
type got struct {
	outcome  outcome
	value    int
	revision int64
}

// register is an object: its value (0 = it is not there, anyValue = there, with an unknown
// value), and a revision at or before its last change.
type register struct {
	value    int
	revision int64
}

// is reports whether a value that was answered is the register's.
func (r register) is(told int) bool {
	return told != 0 && (r.value == told || r.value == anyValue)
}

// after is the register after a request without answer has been done.
func (r register) after(in asked) register {
	switch {
	case in.method == http.MethodDelete:
		r.value = 0
	case in.value != anyValue:
		r.value = in.value
	case r.value == 0:
		r.value = anyValue
	}
	return r
}

// step says what a request does when it is the only one, and whether it may be
// answered so.
func step(is register, in asked, out got) (bool, register) {
	switch {
	case out.outcome == unknown: // whenever it is done; at the end of the history it has no effect
		return true, is.after(in)
	case in.method == http.MethodGet:
		if out.outcome == absent {
			return is.value == 0, is
		}
		if is.is(out.value) {
			is.value = out.value
			return true, is
		}
		return false, is
	case out.outcome == refused:
		return true, is
	case in.method == http.MethodDelete && out.outcome == absent:
		return is.value == 0, is
	case in.method == http.MethodDelete:
		return is.value != 0 && out.revision > is.revision, register{0, out.revision}
	case out.outcome == absent: // what it refers to is
		return true, is
	case in.value == anyValue && is.value != 0: // asked for again
		if !is.is(out.value) || out.revision < is.revision {
			return false, is
		}
		return true, register{out.value, is.revision}
	case in.value == anyValue:
		return out.value != 0 && out.revision > is.revision, register{out.value, out.revision}
	case in.value == is.value: // nothing changes
		return out.value == in.value && out.revision >= is.revision, is
	}
	return out.value == in.value && out.revision > is.revision, register{out.value, out.revision}
}

// registers is the model of all objects of a run.
func registers(objects int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			by := make([][]porcupine.Operation, objects)
			for _, o := range history {
				k := o.Input.(asked).object
				by[k] = append(by[k], o)
			}
			return by
		},
		Step: func(state, input, output any) (bool, any) {
			return step(state.(register), input.(asked), output.(got))
		},
	}
}

// searchTimeout bounds the search for an order; a run of 20,000 requests takes less
// than a second of it.
const searchTimeout = 2 * time.Minute

// judge returns the objects whose history does not match a register.
func judge(t *testing.T, objects []object, history []porcupine.Operation) (wrong []string) {
	t.Helper()
	byObject := make([][]porcupine.Operation, len(objects))
	for _, o := range history {
		k := o.Input.(asked).object
		byObject[k] = append(byObject[k], o)
	}
	model := registers(len(objects))
	model.Partition = nil
	for k, h := range byObject {
		switch porcupine.CheckOperationsTimeout(model, h, searchTimeout) {
		case porcupine.Illegal:
			wrong = append(wrong, objects[k].String())
		case porcupine.Unknown:
			t.Errorf("%s: %s was too short to judge %d requests", objects[k], searchTimeout, len(h))
		case porcupine.Ok:
		}
	}
	return wrong
}

// TestModelJudgesRequests: what the model takes for right and for wrong, request by request.
func TestModelJudgesRequests(t *testing.T) {
	put, del, get := http.MethodPut, http.MethodDelete, http.MethodGet
	there := register{7, 10}
	for name, c := range map[string]struct {
		is   register
		in   asked
		out  got
		ok   bool
		then register
	}{
		"created":                        {register{0, 10}, asked{0, put, 7}, got{done, 7, 11}, true, register{7, 11}},
		"created at an earlier revision": {register{0, 10}, asked{0, put, 7}, got{done, 7, 9}, false, register{}},
		"changed":                        {there, asked{0, put, 8}, got{done, 8, 11}, true, register{8, 11}},
		"changed to something else":      {there, asked{0, put, 8}, got{done, 9, 11}, false, register{}},
		"as it was":                      {there, asked{0, put, 7}, got{done, 7, 10}, true, there},
		"refused":                        {there, asked{0, put, 8}, got{refused, 0, 0}, true, there},
		"who knows":                      {there, asked{0, put, 8}, got{unknown, 0, 0}, true, register{8, 10}},
		"given":                          {register{0, 10}, asked{0, put, anyValue}, got{done, 9, 11}, true, register{9, 11}},
		"given again":                    {there, asked{0, put, anyValue}, got{done, 7, 10}, true, there},
		"given another":                  {there, asked{0, put, anyValue}, got{done, 8, 11}, false, register{}},
		"given, who knows what":          {register{0, 10}, asked{0, put, anyValue}, got{unknown, 0, 0}, true, register{anyValue, 10}},
		"told what was given":            {register{anyValue, 10}, asked{0, get, 0}, got{done, 9, 0}, true, register{9, 10}},
		"read":                           {there, asked{0, get, 0}, got{done, 7, 0}, true, there},
		"read what was":                  {there, asked{0, get, 0}, got{done, 6, 0}, false, register{}},
		"not found":                      {there, asked{0, get, 0}, got{absent, 0, 0}, false, register{}},
		"deleted":                        {there, asked{0, del, 0}, got{done, 0, 11}, true, register{0, 11}},
		"deleted what is gone":           {register{0, 10}, asked{0, del, 0}, got{done, 0, 11}, false, register{}},
		"nothing to delete":              {register{0, 10}, asked{0, del, 0}, got{absent, 0, 0}, true, register{0, 10}},
		"nothing to delete, they say":    {there, asked{0, del, 0}, got{absent, 0, 0}, false, register{}},
		"deleted, who knows":             {there, asked{0, del, 0}, got{unknown, 0, 0}, true, register{0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			ok, then := step(c.is, c.in, c.out)
			if ok != c.ok || ok && then != c.then {
				t.Errorf("%t, %+v; want %t, %+v", ok, then, c.ok, c.then)
			}
		})
	}
}
