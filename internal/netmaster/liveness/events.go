package liveness

import (
	"fmt"
	"maps"
	"slices"

	health "github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Event is something about a host that the leader reports to others than its log.
type Event struct {
	Host    model.HostName
	Reason  string // HostAway, HostBack, RolledBack, EndpointsGivenUp
	Note    string // a sentence; an equal one is the same event, also after a change of leader
	Warning bool
}

// Report hands an event on, if OnEvent is set.
func (w *Watch) Report(e Event) {
	if w.OnEvent != nil {
		w.OnEvent(e)
	}
}

// reporter is what a leader has reported of hosts.
type reporter struct {
	w    *Watch
	away map[model.HostName]bool
	back map[model.HostName]string // of rolled-back, by what it said
}

// report reports what is new of all hosts. While very many are away, that is an event of
// none of them: it says more of who listens.
func (t *reporter) report(alive map[model.HostName]bool, statuses map[model.HostName]tables.HostStatus) {
	log, many := t.w.log, t.w.hosts.TooManyAway(alive)
	known := map[model.HostName]bool{}
	for _, h := range t.w.hosts.List() {
		known[h.Name] = true
		st := statuses[h.Name]
		switch {
		case !alive[h.Name] && !t.away[h.Name]:
			t.away[h.Name] = true
			log.Warn("a host is away: its netplugin sends no heartbeat; its containers keep communicating under the last policy",
				"host", string(h.Name), "vtep", h.VTEP, "lastWord", st.Updated)
			if !many {
				t.w.Report(Event{h.Name, "HostAway", fmt.Sprintf("Contiv's netplugin sends no heartbeat; the last one was at %s. Containers there keep communicating under the last policy, and none can be attached.", st.Updated), true})
			}
		case alive[h.Name] && t.away[h.Name]:
			delete(t.away, h.Name)
			log.Info("a host is back", "host", string(h.Name), "vtep", h.VTEP)
			t.w.Report(Event{h.Name, "HostBack", fmt.Sprintf("Contiv's netplugin sends heartbeats again, since %s.", st.Updated), false})
		}
		said := ""
		if i := slices.IndexFunc(st.Conditions, func(c tables.HostCondition) bool { return c.Name == health.HostRolledBack.Name() }); i >= 0 {
			said = st.Conditions[i].Message
		}
		if said != "" && said != t.back[h.Name] {
			log.Warn("a host has rolled back an unconfirmed change by itself", "host", string(h.Name), "condition", said)
			t.w.Report(Event{h.Name, "RolledBack", said, true})
		}
		t.back[h.Name] = said
	}
	maps.DeleteFunc(t.away, func(h model.HostName, _ bool) bool { return !known[h] })
	maps.DeleteFunc(t.back, func(h model.HostName, _ string) bool { return !known[h] })
}
