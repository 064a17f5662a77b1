package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Health is what /readyz of netmaster, and /healthz and /readyz of netplugin,
// tell of themselves.
type Health struct {
	Ready      bool        `json:"ready"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one named part of a daemon's health.
type Condition struct {
	Name     string `json:"name"` // stable
	OK       bool   `json:"ok"`
	Severity string `json:"severity,omitempty"` // error, warning, notice: how bad it is while it does not hold
	Message  string `json:"message,omitempty"`  // what is wrong, a sentence
	Remedy   string `json:"remedy,omitempty"`   // what to do
	Page     string `json:"page,omitempty"`     // where it is documented
}

// isOutage reports whether something does not work because of the condition. One without a
// severity counts as an error.
func (c Condition) isOutage() bool {
	return !c.OK && c.Severity != SeverityWarning && c.Severity != SeverityNotice
}

// IsHealthy reports whether the daemon is ready and no condition is an error.
func (h Health) IsHealthy() bool {
	return h.Ready && !slices.ContainsFunc(h.Conditions, Condition.isOutage)
}

// String is Health for people: "ok", "degraded" or "not ready", then a line for each
// condition that does not hold.
func (h Health) String() string {
	var b strings.Builder
	switch {
	case h.IsHealthy():
		b.WriteString("ok\n")
	case h.Ready:
		b.WriteString("degraded\n")
	default:
		b.WriteString("not ready\n")
	}
	for _, c := range h.Conditions {
		switch {
		case c.OK:
		case c.isOutage():
			fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Message)
		default:
			fmt.Fprintf(&b, "%s: %s: %s\n", c.Severity, c.Name, c.Message)
		}
	}
	return b.String()
}

// ServeHTTP answers 200 when ready, else 503: as text, or as JSON for a request
// that accepts it or has ?format=json. Another format is refused with 400.
func (h Health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(w, r, h.Ready) }

// ServeHealthy is ServeHTTP that answers 200 only when nothing is cut off either.
func (h Health) ServeHealthy(w http.ResponseWriter, r *http.Request) { h.serve(w, r, h.IsHealthy()) }

func (h Health) serve(w http.ResponseWriter, r *http.Request, ok bool) {
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	format := r.URL.Query().Get("format")
	if format != "" && format != "json" {
		http.Error(w, fmt.Sprintf("format %q: must be json", format), http.StatusBadRequest)
		return
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") || format == "json" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(h) // who does not listen any more needs no answer
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, h.String()) // likewise
}

// ReplicaHealth is what a replica answers to GET /readyz.
type ReplicaHealth struct {
	URL    string
	Health Health
	Err    error // it does not answer, or not as a netmaster does
}

// replicaTimeout bounds what OtherReplicas waits for.
const replicaTimeout = 3 * time.Second

// OtherReplicas asks all replicas at once whether they are ready, except the one that has
// answered last.
func (c *Client) OtherReplicas(ctx context.Context) []ReplicaHealth {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	others := slices.Clone(c.bases)
	last := int(c.current.Load())
	others = slices.Delete(others, last, last+1)
	out := make([]ReplicaHealth, len(others))
	var asking sync.WaitGroup
	for i, base := range others {
		asking.Go(func() {
			out[i].URL = base.String()
			a := c.try(ctx, base, http.MethodGet, "/readyz", nil)
			if refusal, ok := errors.AsType[*Error](a.err); ok && refusal.Status == http.StatusServiceUnavailable {
				a.data, a.err = []byte(refusal.Message), nil
			}
			if a.err == nil {
				a.err = json.Unmarshal(a.data, &out[i].Health)
			}
			if u, ok := errors.AsType[*url.Error](a.err); ok { // its text repeats method and URL
				a.err = u.Err
			}
			out[i].Err = a.err
		})
	}
	asking.Wait()
	return out
}
