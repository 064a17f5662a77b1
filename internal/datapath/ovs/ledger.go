package ovs

import (
	"cmp"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
)

// owner names the object that flows belong to.
type owner struct {
	kind pipeline.Kind
	id   uint64
	name string
}

// ledger knows which flows are wanted, by owner, and which the switch holds.
// Its cost follows the flows that change, not the flows that it knows.
type ledger struct {
	owned     map[owner]map[string]string   // key -> body of each owner's flows
	owners    map[string][]owner            // key -> owners in order, nearly always one
	installed map[string]string             // key -> body in the switch
	pending   map[string]struct{}           // keys that may differ
	watch     func(key, body string) string // what monitoring makes of a flow's body; nil = no monitor
}

func newLedger() *ledger {
	return &ledger{
		owned: map[owner]map[string]string{}, owners: map[string][]owner{},
		installed: map[string]string{}, pending: map[string]struct{}{},
	}
}

// set makes flows all that o owns; without flows the owner goes.
func (l *ledger) set(o owner, flows []openflow.Flow) {
	next := make(map[string]bool, len(flows))
	for _, f := range flows {
		next[f.Key()] = true
	}
	for k := range l.owned[o] {
		if !next[k] {
			l.take(o, k)
		}
	}
	l.add(o, flows)
}

// add gives o more flows; each replaces the flow of the same key that o owns.
func (l *ledger) add(o owner, flows []openflow.Flow) {
	own := l.owned[o]
	if own == nil && len(flows) > 0 {
		own = make(map[string]string, len(flows))
		l.owned[o] = own
	}
	for _, f := range flows {
		k, body := f.Key(), f.Body()
		was, had := own[k]
		if !had {
			c := l.owners[k]
			i, _ := slices.BinarySearchFunc(c, o, owner.compare)
			l.owners[k] = slices.Insert(c, i, o)
		}
		if !had || was != body {
			own[k] = body
			l.pending[k] = struct{}{}
		}
	}
}

// remove takes some flows from o.
func (l *ledger) remove(o owner, flows []openflow.Flow) {
	for _, f := range flows {
		l.take(o, f.Key())
	}
}

func (l *ledger) take(o owner, key string) {
	own := l.owned[o]
	if _, had := own[key]; !had {
		return
	}
	delete(own, key)
	if len(own) == 0 {
		delete(l.owned, o)
	}
	c := l.owners[key]
	if i, ok := slices.BinarySearchFunc(c, o, owner.compare); ok {
		c = slices.Delete(c, i, i+1)
	}
	if len(c) == 0 {
		delete(l.owners, key)
	} else {
		l.owners[key] = c
	}
	l.pending[key] = struct{}{}
}

// wanted is what the switch should hold at a key. When several owners claim it
// (an endpoint that moves is for a moment here and there; rules of one weight
// may match the same) the smallest one has it, so that the outcome does not
// depend on the order of events.
func (l *ledger) wanted(key string) (string, bool) {
	c := l.owners[key]
	if len(c) == 0 {
		return "", false
	}
	body := l.owned[c[0]][key]
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

func (o owner) compare(p owner) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), cmp.Compare(o.id, p.id), strings.Compare(o.name, p.name))
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
	if len(l.pending) == 0 {
		l.pending = map[string]struct{}{} // looking through an emptied map costs as much as when it was full
	}
}

// found replaces what is known of the switch by what was read from it.
func (l *ledger) found(installed map[string]string) {
	for k, body := range installed {
		if want, ok := l.wanted(k); !ok || want != body {
			l.pending[k] = struct{}{}
		}
	}
	for k := range l.owners {
		if _, ok := installed[k]; !ok {
			l.pending[k] = struct{}{}
		}
	}
	l.installed = installed
}
