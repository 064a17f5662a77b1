package fabric

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Inspection is what GET /inspect/bgp tells: 1.x' peers and dsts among more.
type Inspection struct {
	Admin    string            `json:"adminStatus"` // "enabled", "not configured", or why the host does not speak
	Problems map[string]string `json:"problems,omitempty"`
	bgp.State
}

// Values of Inspection.Admin.
const (
	Enabled       = "enabled"
	NotConfigured = "not configured"
)

// State tells how this host's BGP fares now. It has no secrets.
func (r *Router) State(ctx context.Context) Inspection {
	r.mu.Lock()
	s := r.speaker
	out := Inspection{Admin: r.adminLocked(), Problems: maps.Clone(r.problems)}
	r.mu.Unlock()
	if s != nil {
		if st, err := s.State(ctx); err == nil { // else it ends
			out.State = st
		}
	}
	if out.Peers == nil {
		out.Peers, out.Dsts, out.Announced = []bgp.PeerState{}, []netip.Prefix{}, []netip.Prefix{}
	}
	return out
}

func (r *Router) adminLocked() string {
	switch {
	case r.in == nil:
		return NotConfigured
	case r.speaker != nil:
		return Enabled
	case r.problems["BGP"] != "":
		return r.problems["BGP"]
	}
	return "starting"
}

// firstRoutes is how many learned prefixes a status has.
const firstRoutes = 20

// firstAnnounced is how many announced prefixes a status has.
const firstAnnounced = 200

// Status is the short form of State for the host's status; nil without settings.
func (r *Router) Status() *tables.BGPStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.in == nil {
		return nil
	}
	out := &tables.BGPStatus{Admin: r.adminLocked(), Routes: len(r.state.Dsts), Announced: len(r.state.Announced)}
	var peers []string
	for _, p := range r.state.Peers {
		peers = append(peers, p.Address.String()+" "+p.State)
	}
	out.Neighbors = strings.Join(peers, ", ")
	for _, p := range r.state.Dsts[:min(firstRoutes, len(r.state.Dsts))] {
		out.First = append(out.First, p.String())
	}
	for _, p := range r.state.Announced[:min(firstAnnounced, len(r.state.Announced))] {
		out.Prefixes = append(out.Prefixes, p.String())
	}
	return out
}

// observe looks at the sessions.
func (r *Router) observe(ctx context.Context) {
	if r.running.speaker == nil {
		return
	}
	r.mu.Lock()
	problems := maps.Clone(r.problems)
	r.mu.Unlock()
	r.reportProblems(ctx, problems)
}

// reportProblems has problems, and those of sessions, told if they are others than before.
func (r *Router) reportProblems(ctx context.Context, problems map[string]string) {
	maps.DeleteFunc(problems, func(object, _ string) bool { return strings.HasPrefix(object, sessionObject) })
	var st bgp.State
	if s := r.running.speaker; s != nil {
		var err error
		if st, err = s.State(ctx); err != nil {
			return // its end
		}
	}
	for _, p := range st.Peers {
		if p.State != bgp.Established {
			problems[sessionObject+p.Address.String()] = whyNoSession(p)
		}
	}
	r.mu.Lock()
	changed := !maps.Equal(r.problems, problems) || len(r.state.Dsts) != len(st.Dsts) || len(r.state.Announced) != len(st.Announced)
	r.problems, r.state = problems, st
	r.mu.Unlock()
	if changed {
		r.cfg.Tell()
	}
}

const sessionObject = "BGP session "

// whyNoSession says why there is no session with a neighbor.
func whyNoSession(p bgp.PeerState) string {
	why := p.Problem
	if why == "" {
		why = p.WhyDown
	}
	if why == "" {
		why = "it does not answer yet"
	}
	return fmt.Sprintf("none with AS %d: %s", p.AS, why)
}

// Collector is the metrics of whatever speaker runs.
func (r *Router) Collector() prometheus.Collector { return collector{r} }

type collector struct{ r *Router }

func (collector) Describe(ch chan<- *prometheus.Desc) { bgp.Collector{}.Describe(ch) }

func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.r.mu.Lock()
	s := c.r.speaker
	c.r.mu.Unlock()
	if s != nil {
		bgp.Collector{Speaker: s}.Collect(ch)
	}
}
