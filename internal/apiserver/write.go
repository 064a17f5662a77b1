package apiserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// writer is what creating and changing objects of a kind takes.
type writer struct {
	kind string // the object's type, as in links and lists to be applied
	// read turns a body into a wish.
	read func(decode decoder) (wish, error)
	// render makes the wire object, without links, of an object of package model;
	// view makes it with links.
	render func(m any) any
	view   func(v *control.View, m any) any
}

// wish is an object that a request asks for.
type wish struct {
	change   control.Change
	key      string
	warnings []string // what of it has no effect
}

// decoder decodes a body into out and returns it.
type decoder func(out any) (body []byte, err error)

// emptied tells whether a request names a field and leaves it empty.
type emptied func(field string) bool

// writes builds a writer: decode, convert, and the change.
func writes[A api.Object, M any](kind string, from func(A) (M, error), change func(M, emptied) control.Change, to func(M) A, view func(*control.View, M) any) writer {
	return writer{
		kind: kind,
		read: func(decode decoder) (w wish, err error) {
			var o A
			body, err := decode(&o)
			if err != nil {
				return w, err
			}
			m, err := from(o)
			if err != nil {
				return w, err
			}
			w.change = change(m, func(field string) bool { return string(rawField(body, field)) == `""` })
			w.key, w.warnings = o.ObjectKey(), warnings(m)
			return w, nil
		},
		render: func(m any) any {
			if m, ok := m.(M); ok {
				return to(m)
			}
			return nil
		},
		view: func(v *control.View, m any) any {
			if m, ok := m.(M); ok {
				return view(v, m)
			}
			return nil
		},
	}
}

// whole is the change of a kind whose empty fields mean nothing special.
func whole[M any](change func(M) control.Change) func(M, emptied) control.Change {
	return func(m M, _ emptied) control.Change { return change(m) }
}

// without makes a view of a kind that has no links of others.
func without[M any, A any](to func(M) A) func(*control.View, M) any {
	return func(_ *control.View, m M) any { return to(m) }
}

// warnings says what of an object has no effect.
func warnings(m any) []string {
	var out []string
	for _, n := range model.WithoutEffect(m) {
		out = append(out, n.Text)
	}
	return out
}

// write creates or changes an object and answers with it as it was committed.
func (s *server) write(k kind, w http.ResponseWriter, r *http.Request) (any, error) {
	want, err := k.writer.read(func(out any) ([]byte, error) {
		var body json.RawMessage
		if _, err := decode(w, r, &body); err != nil {
			return nil, err
		}
		body = withoutLinks(body)
		return body, decodeJSON(body, out)
	})
	if err != nil {
		return nil, err
	}
	if err := checkKey(r.PathValue("key"), want.key); err != nil {
		return nil, err
	}
	done, err := s.control.Put(r.Context(), want.change)
	if err != nil {
		return nil, err
	}
	for _, text := range want.warnings {
		w.Header().Add("Warning", `299 - `+strconv.Quote(text)) // RFC 9111 section 5.5, whose form outlives its registration
	}
	// The object is what was committed, whatever somebody has done to it since;
	// only what others link to it comes from the view, which may lag behind when
	// the store is slow.
	if err := s.control.WaitFor(r.Context(), done.Revision); err != nil {
		s.log.Debug("a write is answered with links as they were before", "path", r.URL.Path, "err", err)
	}
	return k.writer.view(s.control.Current(), done.Object), nil
}

// serverFields are the server's: whatever a client sends in them is ignored.
var serverFields = []string{"link-sets", "links"}

// withoutLinks takes the server's fields out of an object, of whatever type they are.
func withoutLinks(object []byte) []byte {
	var fields map[string]json.RawMessage
	if !bytes.Contains(bytes.ToLower(object), []byte(`"link`)) || json.Unmarshal(object, &fields) != nil {
		return object
	}
	for name := range fields {
		if slices.ContainsFunc(serverFields, func(f string) bool { return strings.EqualFold(f, name) }) {
			delete(fields, name)
		}
	}
	if out, err := json.Marshal(fields); err == nil {
		return out
	}
	return object
}

// revisionHeader carries the store revision of a write's commit.
const revisionHeader = "X-Contiv-Revision"
