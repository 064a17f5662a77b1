package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
)

// maxElement is the largest element of a list that is looked at, in bytes.
const maxElement = 16 << 20

var errList = errors.New("the answer is not a list, as it should be: nothing more of it is shown")

// listFilter writes an array of JSON without the elements that are not to be kept,
// while it comes: of a list of any length it holds one element.
type listFilter struct {
	to   io.Writer
	keep func(element []byte) bool

	begun, ended    bool
	failed          error
	depth           int // of braces and brackets within the element
	quoted, escaped bool
	element         []byte
	elements, shown int
}

// Write takes the next part of the array.
func (f *listFilter) Write(p []byte) (int, error) {
	for _, c := range p {
		if f.failed == nil {
			f.failed = f.next(c)
		}
	}
	return len(p), f.failed
}

func (f *listFilter) next(c byte) error {
	space := c == ' ' || c == '\n' || c == '\t' || c == '\r'
	switch {
	case f.quoted:
		switch {
		case f.escaped:
			f.escaped = false
		case c == '\\':
			f.escaped = true
		case c == '"':
			f.quoted = false
		}
	case !f.begun || f.ended:
		if space {
			return nil
		}
		if c != '[' || f.ended {
			return errList
		}
		f.begun = true
		_, err := f.to.Write([]byte{c})
		return err
	case f.depth == 0 && c == ',':
		return f.emit()
	case f.depth == 0 && c == ']':
		f.ended = true
		if f.elements > 0 || len(bytes.TrimSpace(f.element)) > 0 {
			if err := f.emit(); err != nil {
				return err
			}
		}
		_, err := f.to.Write([]byte("]\n"))
		return err
	case c == '"':
		f.quoted = true
	case c == '{' || c == '[':
		f.depth++
	case c == '}' || c == ']':
		f.depth--
	}
	if f.depth < 0 || len(f.element) >= maxElement {
		return errList
	}
	f.element = append(f.element, c)
	return nil
}

// emit ends an element.
func (f *listFilter) emit() error {
	element := bytes.TrimSpace(f.element)
	f.element = f.element[:0]
	f.elements++
	if len(element) == 0 {
		return errList
	}
	if !f.keep(element) {
		return nil
	}
	if f.shown++; f.shown > 1 {
		element = slices.Insert(element, 0, ',')
	}
	_, err := f.to.Write(element)
	return err
}

// ofTenants keeps objects of tenants.
func ofTenants(tenants []string) func([]byte) bool {
	return func(element []byte) bool {
		var o struct {
			TenantName string `json:"tenantName"` // services have it in another case
		}
		return json.Unmarshal(element, &o) == nil && slices.Contains(tenants, o.TenantName)
	}
}

// listWriter filters an answer that is a list, and leaves others, which are refusals,
// as they are. It has no Unwrap, so that nobody gets around it.
type listWriter struct {
	to     http.ResponseWriter
	filter *listFilter
	asIs   bool
	begun  bool
}

func newListWriter(w http.ResponseWriter, tenants []string) *listWriter {
	return &listWriter{to: w, filter: &listFilter{to: w, keep: ofTenants(tenants)}}
}

// Header implements http.ResponseWriter.
func (w *listWriter) Header() http.Header { return w.to.Header() }

// WriteHeader implements http.ResponseWriter.
func (w *listWriter) WriteHeader(status int) {
	w.begun = true
	w.asIs = status >= http.StatusBadRequest
	if !w.asIs {
		w.to.Header().Del("Content-Length") // of the whole list
	}
	w.to.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *listWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if w.asIs {
		return w.to.Write(b)
	}
	return w.filter.Write(b)
}
