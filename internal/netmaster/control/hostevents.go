package control

import (
	"fmt"
	"maps"
	"slices"

	health "github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// HostEvent is something about a host that the leader tells others than its log.
type HostEvent struct {
	Host    model.HostName
	Reason  string // HostAway, HostBack, RolledBack, EndpointsGivenUp
	Note    string // a sentence; an equal one is the same event, also after a change of leader
	Warning bool
}

// event hands an event on, if anybody wants it.
func (w *HostWatch) event(e HostEvent) {
	if w.OnEvent != nil {
		w.OnEvent(e)
	}
}

// tooMany tells whether nothing is concluded of who is away now.
func (w *HostWatch) tooMany(alive map[model.HostName]bool) bool {
	return w.hosts.commits.Current().Hosts.TooManyAway(alive)
}

// teller is what a leader has told of hosts.
type teller struct {
	w    *HostWatch
	away map[model.HostName]bool
	back map[model.HostName]string // of rolled-back, by what it said
}

// tell tells what is new of all hosts. That one of very many is away is an event of none
// of them: it says more of who listens.
func (t *teller) tell(alive map[model.HostName]bool, statuses map[model.HostName]HostStatus) {
	log, many := t.w.hosts.commits.log, t.w.tooMany(alive)
	known := map[model.HostName]bool{}
	for _, h := range t.w.hosts.commits.Current().Hosts.List() {
		known[h.Name] = true
		st := statuses[h.Name]
		switch {
		case !alive[h.Name] && !t.away[h.Name]:
			t.away[h.Name] = true
			log.Warn("a host is away: its netplugin sends no heartbeat; its containers keep communicating under the last policy",
				"host", string(h.Name), "vtep", h.VTEP, "lastWord", st.Updated)
			if !many {
				t.w.event(HostEvent{h.Name, "HostAway", fmt.Sprintf("Contiv's netplugin sends no heartbeat; the last one was at %s. Containers there keep communicating under the last policy, and none can be attached.", st.Updated), true})
			}
		case alive[h.Name] && t.away[h.Name]:
			delete(t.away, h.Name)
			log.Info("a host is back", "host", string(h.Name), "vtep", h.VTEP)
			t.w.event(HostEvent{h.Name, "HostBack", fmt.Sprintf("Contiv's netplugin sends heartbeats again, since %s.", st.Updated), false})
		}
		said := ""
		if i := slices.IndexFunc(st.Conditions, func(c tables.HostCondition) bool { return c.Name == health.HostRolledBack.Name() }); i >= 0 {
			said = st.Conditions[i].Message
		}
		if said != "" && said != t.back[h.Name] {
			log.Warn("a host has rolled back an unconfirmed change by itself", "host", string(h.Name), "condition", said)
			t.w.event(HostEvent{h.Name, "RolledBack", said, true})
		}
		t.back[h.Name] = said
	}
	maps.DeleteFunc(t.away, func(h model.HostName, _ bool) bool { return !known[h] })
	maps.DeleteFunc(t.back, func(h model.HostName, _ string) bool { return !known[h] })
}
