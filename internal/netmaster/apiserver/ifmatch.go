package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// tag sends an object's revision as its entity tag (RFC 9110 section 8.8.3).
func tag(w http.ResponseWriter, v *control.View, kind, key string) {
	if rev := v.Revisions.Written(kind, key); rev != 0 {
		w.Header().Set("ETag", fmt.Sprintf("%q", strconv.FormatInt(int64(rev), 10)))
	}
}

// ifMatch returns the condition that the object has the revision that the request names in
// If-Match; nil = it names none.
func (s *objectHandlers) ifMatch(r *request, kind, key string) (*control.Condition, error) {
	all := r.Header.Values("If-Match")
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // no condition
	}
	text := strings.Join(all, ",")
	opaque, quoted := strings.CutPrefix(text, `"`)
	opaque, closed := strings.CutSuffix(opaque, `"`)
	rev, err := strconv.ParseInt(opaque, 10, 64)
	if err != nil || rev <= 0 || !quoted || !closed {
		return nil, model.InvalidField("header If-Match", clip([]byte(text)), "must be the ETag of an answer to GET, such as \"1234\"")
	}
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	return v.Revisions.OnlyAt(kind, key, rev), nil
}

// takesIfMatch reports whether a method of a path writes one object under If-Match.
func takesIfMatch(method, path string) bool {
	if method != http.MethodPost && method != http.MethodPut && method != http.MethodDelete {
		return false
	}
	if path == networkRulePath {
		return true
	}
	for _, k := range collections() {
		if path == "/api/v1/"+k.collection+"/{key}" {
			return true
		}
	}
	return false
}

// checkConditions refuses a conditional write (RFC 9110 section 13.1) whose condition would
// have no effect; pattern is the mux's.
func checkConditions(pattern string, r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	_, path, _ := strings.Cut(strings.TrimSuffix(pattern, "/{$}"), " ")
	for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
		if len(r.Header.Values(name)) == 0 || name == "If-Match" && takesIfMatch(r.Method, path) {
			continue
		}
		return model.Errorf(model.ErrInvalid, "header %s: not supported for this write; omit it (If-Match is for POST, PUT and DELETE of one object)", name)
	}
	return nil
}

// tagCommitted sends the entity tag of an object that was written, once the view has the
// commit, or without when the store is slow.
func (s *objectHandlers) tagCommitted(w http.ResponseWriter, r *request, kind, key string, done control.Commit) {
	if err := s.control.WaitFor(r.Context(), done.Revision); err != nil {
		s.log.Debug("a write is answered with links and revision as they were before", "path", r.URL.Path, "error", err)
	}
	tag(w, s.control.Current(), kind, key)
}
