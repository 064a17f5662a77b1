package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// conditional reports whether writes of a kind can be made under a condition: the object is
// one row, whose revision is the object's. The rules of a network policy are rows of their
// own.
func (k *kind) conditional() bool { return k.name != "networkPolicy" }

// tag sends an object's revision as its entity tag (RFC 9110 section 8.8.3).
func (k *kind) tag(w http.ResponseWriter, v *control.View, key string) {
	if rev := v.Written(k.name, key); rev != 0 && k.conditional() {
		w.Header().Set("ETag", fmt.Sprintf("%q", strconv.FormatInt(int64(rev), 10)))
	}
}

// ifMatch reads the revision that an object must have for a write of it to be made; 0 = any.
func ifMatch(r *http.Request) (int64, error) {
	text := r.Header.Get("If-Match")
	if text == "" {
		return 0, nil
	}
	rev, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	if err != nil || rev <= 0 {
		return 0, model.InvalidField("header If-Match", clip([]byte(text)), "must be the ETag of an answer to GET, such as \"1234\"")
	}
	return rev, nil
}

// kindAt returns the kind of the object that a route of a collection names; nil = none.
func kindAt(pattern string) *kind {
	_, path, _ := strings.Cut(strings.TrimSuffix(pattern, "/{$}"), " ")
	for _, k := range collections() {
		if path == "/api/v1/"+k.collection+"/{key}" {
			return k
		}
	}
	return nil
}

// checkConditions refuses a write under a condition (RFC 9110 section 13.1) that nothing
// would look at; pattern is that of the mux.
func checkConditions(pattern string, r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
		if r.Header.Get(name) == "" {
			continue
		}
		if k := kindAt(pattern); k != nil && k.conditional() && name == "If-Match" && r.Method != http.MethodDelete {
			continue
		}
		return model.Errorf(model.ErrInvalid, "header %s: this write is made under no condition; leave it out (If-Match is for POST and PUT of one object that is no network policy)", name)
	}
	return nil
}
