package ovs

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/pipeline"
)

// owner names the object that flows belong to.
type owner struct {
	kind pipeline.Kind
	id   uint64
	name string
}

// ledger knows which flows are wanted, by owner, and which the switch holds.
// Its cost follows the flows that change, not those that are there.
type ledger struct {
	owned     map[owner]map[string]string   // key -> body of each owner's flows
	claims    map[string][]owner            // key -> owners, nearly always one
	installed map[string]string             // key -> body in the switch
	pending   map[string]struct{}           // keys that may differ
	watch     func(key, body string) string // what monitoring makes of a flow's body; nil = nobody monitors
}

func newLedger() *ledger {
	return &ledger{
		owned: map[owner]map[string]string{}, claims: map[string][]owner{},
		installed: map[string]string{}, pending: map[string]struct{}{},
	}
}

// set makes flows all that o owns; none removes the owner.
func (l *ledger) set(o owner, flows []openflow.Flow) {
	old := l.owned[o]
	next := make(map[string]string, len(flows))
	for _, f := range flows {
		next[f.Key()] = f.Body()
	}
	for k := range old {
		if _, ok := next[k]; ok {
			continue
		}
		l.pending[k] = struct{}{}
		c := l.claims[k]
		for i := range c {
			if c[i] == o {
				c = append(c[:i:i], c[i+1:]...)
				break
			}
		}
		if len(c) == 0 {
			delete(l.claims, k)
		} else {
			l.claims[k] = c
		}
	}
	for k, body := range next {
		was, had := old[k]
		if !had {
			l.claims[k] = append(l.claims[k], o)
		}
		if !had || was != body {
			l.pending[k] = struct{}{}
		}
	}
	if len(next) == 0 {
		delete(l.owned, o)
		return
	}
	l.owned[o] = next
}

// wanted is what the switch should hold at a key. When two owners claim it (an
// endpoint that moves is for a moment here and there) the smaller one has it,
// so that the outcome does not depend on the order of events.
func (l *ledger) wanted(key string) (string, bool) {
	c := l.claims[key]
	if len(c) == 0 {
		return "", false
	}
	best := c[0]
	for _, o := range c[1:] {
		if o.less(best) {
			best = o
		}
	}
	body := l.owned[best][key]
	if l.watch != nil {
		body = l.watch(key, body)
	}
	return body, true
}

// setWatch changes what monitoring makes of flows.
func (l *ledger) setWatch(watch func(key, body string) string) {
	l.watch = watch
	l.found(l.installed)
}

func (o owner) less(p owner) bool {
	if o.kind != p.kind {
		return o.kind < p.kind
	}
	if o.id != p.id {
		return o.id < p.id
	}
	return strings.Compare(o.name, p.name) < 0
}

// edit is one flow to write or remove.
type edit struct {
	key, body string
	remove    bool
}

// edits lists how the switch must change.
func (l *ledger) edits() []edit {
	var out []edit
	for k := range l.pending {
		want, ok := l.wanted(k)
		have, has := l.installed[k]
		switch {
		case ok && (!has || have != want):
			out = append(out, edit{key: k, body: want})
		case !ok && has:
			out = append(out, edit{key: k, body: have, remove: true})
		default:
			delete(l.pending, k)
		}
	}
	return out
}

// done records that the switch has taken edits.
func (l *ledger) done(edits []edit) {
	for _, e := range edits {
		if e.remove {
			delete(l.installed, e.key)
		} else {
			l.installed[e.key] = e.body
		}
		delete(l.pending, e.key)
	}
}

// found replaces what is known of the switch by what was read from it.
func (l *ledger) found(installed map[string]string) {
	for k, body := range installed {
		if want, ok := l.wanted(k); !ok || want != body {
			l.pending[k] = struct{}{}
		}
	}
	for k := range l.claims {
		if _, ok := installed[k]; !ok {
			l.pending[k] = struct{}{}
		}
	}
	l.installed = installed
}
