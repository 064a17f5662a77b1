package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Health is what /readyz of netmaster, and /healthz and /readyz of netplugin,
// tell of themselves.
type Health struct {
	Ready      bool        `json:"ready"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one named part of a daemon's health.
type Condition struct {
	Name    string `json:"name"` // stable
	OK      bool   `json:"ok"`
	Notice  bool   `json:"notice,omitempty"`  // it does not count for readiness
	Message string `json:"message,omitempty"` // what is wrong, a sentence
	// Degraded: something is cut off, be the daemon ready. Only with Notice.
	Degraded bool `json:"degraded,omitempty"`
}

// Add enters a condition, which holds when err is nil.
func (h *Health) Add(name string, notice bool, err error) {
	c := Condition{Name: name, OK: err == nil, Notice: notice}
	if err != nil {
		c.Message = err.Error()
		h.Ready = h.Ready && notice
	}
	h.Conditions = append(h.Conditions, c)
}

// AddDegraded enters a condition that does not count for readiness, and by which something
// is cut off while it does not hold.
func (h *Health) AddDegraded(name string, err error) {
	h.Add(name, true, err)
	h.Conditions[len(h.Conditions)-1].Degraded = err != nil
}

// Well reports whether the daemon is ready and nothing is cut off.
func (h Health) Well() bool {
	return h.Ready && !slices.ContainsFunc(h.Conditions, func(c Condition) bool { return c.Degraded })
}

// String is Health for people: "ok", "degraded" or "not ready", then a line for each
// condition that does not hold.
func (h Health) String() string {
	var b strings.Builder
	switch {
	case h.Well():
		b.WriteString("ok\n")
	case h.Ready:
		b.WriteString("degraded\n")
	default:
		b.WriteString("not ready\n")
	}
	for _, c := range h.Conditions {
		switch {
		case c.OK:
		case c.Notice && !c.Degraded:
			fmt.Fprintf(&b, "notice: %s: %s\n", c.Name, c.Message)
		default:
			fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Message)
		}
	}
	return b.String()
}

// ServeHTTP answers 200 when ready, else 503: as text, or as JSON for a request
// that accepts it or has ?format=json.
func (h Health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(w, r, h.Ready) }

// ServeWell is ServeHTTP that answers 200 only when nothing is cut off either.
func (h Health) ServeWell(w http.ResponseWriter, r *http.Request) { h.serve(w, r, h.Well()) }

func (h Health) serve(w http.ResponseWriter, r *http.Request, ok bool) {
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") || r.URL.Query().Get("format") == "json" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(h) // who does not listen any more needs no answer
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, h.String()) // likewise
}
