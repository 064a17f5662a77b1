package audit

import (
	"encoding/json"
	"strings"
	"time"
)

// Results of an Entry.
const (
	Done    = "done"    // the request was answered with success
	Failed  = "failed"  // it was let in, and answered with an error
	Refused = "refused" // it was not let in
)

// Object is what a request changes.
type Object struct {
	Kind string `json:"kind"` // as in lists to be applied: "network"; what is no such object has a word of its own
	Key  string `json:"key,omitempty"`
}

// Entry is one line. Texts come from clients: Log cuts them.
type Entry struct {
	Time time.Time `json:"time"`           // when the answer was known
	Who  string    `json:"who"`            // name; empty = unknown
	How  string    `json:"how"`            // certificate, token, oidc, shared; empty = not authenticated
	ID   string    `json:"id,omitempty"`   // of the token or the certificate
	Role string    `json:"role,omitempty"` // by which it was let in
	From string    `json:"from"`           // address of the client
	// Method and Route are the request's, without what was in the path.
	Method string `json:"method"`
	Route  string `json:"route,omitempty"`
	// Objects are what it was about, at most MaxObjects; More are beyond them.
	Objects []Object `json:"objects,omitempty"`
	More    int      `json:"more,omitempty"`
	// Before is the object's revision in the store before; 0 = unknown, or there was none.
	// After is the revision of the commit; 0 = nothing was committed.
	Before int64  `json:"before,omitempty"`
	After  int64  `json:"after,omitempty"`
	Status int    `json:"status"` // of HTTP
	Result string `json:"result"`
	Why    string `json:"why,omitempty"`  // of a refusal: the sentence
	What   string `json:"what,omitempty"` // of an agent's report: what it changed
	// Lost are the lines before this one that could not be written, and Omitted the
	// refusals among them for which there were too many.
	Lost    int64 `json:"lost,omitempty"`
	Omitted int64 `json:"omitted,omitempty"`
}

// Bounds of an Entry.
const (
	MaxObjects = 64
	maxText    = 300 // bytes of a text
)

// line makes the line of an entry, cut to its bounds.
func (e Entry) line() ([]byte, error) {
	if n := len(e.Objects) - MaxObjects; n > 0 {
		e.Objects, e.More = e.Objects[:MaxObjects], e.More+n
	}
	objects := make([]Object, len(e.Objects))
	for i, o := range e.Objects {
		objects[i] = Object{Kind: cut(o.Kind), Key: cut(o.Key)}
	}
	e.Objects = objects
	for _, s := range []*string{&e.Who, &e.How, &e.ID, &e.Role, &e.From, &e.Method, &e.Route, &e.Result, &e.Why, &e.What} {
		*s = cut(*s)
	}
	e.Time = e.Time.UTC()
	b, err := json.Marshal(e)
	return append(b, '\n'), err
}

func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
