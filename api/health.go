package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// String is Health for people: "ok" or "not ready", then a line for each
// condition that does not hold.
func (h Health) String() string {
	var b strings.Builder
	if h.Ready {
		b.WriteString("ok\n")
	} else {
		b.WriteString("not ready\n")
	}
	for _, c := range h.Conditions {
		switch {
		case c.OK:
		case c.Notice:
			fmt.Fprintf(&b, "notice: %s: %s\n", c.Name, c.Message)
		default:
			fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Message)
		}
	}
	return b.String()
}

// ServeHTTP answers 200 when ready, else 503: as text, or as JSON for a request
// that accepts it or has ?format=json.
func (h Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	if !h.Ready {
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
