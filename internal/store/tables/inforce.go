package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// InForce decodes the events of one mirror like Decode, but returns the rules in force: the
// rules that a policy's Replacement has staged once that is Done, the rows of Rules
// otherwise. It begins empty, again with each snapshot. It is not safe for several
// goroutines.
type InForce struct {
	rules    map[model.RuleKey]any // rows of Rules
	staged   map[model.PolicyKey]map[model.RuleKey]any
	done     map[model.PolicyKey]bool
	affected map[model.RuleKey]bool // by what has come of replacements since Rest
}

// NewInForce returns an InForce for a mirror's first snapshot, or a new one.
func NewInForce() *InForce {
	return &InForce{
		rules: map[model.RuleKey]any{}, staged: map[model.PolicyKey]map[model.RuleKey]any{},
		done: map[model.PolicyKey]bool{}, affected: map[model.RuleKey]bool{},
	}
}

// Decode turns an event into typed form. It fails on a row that cannot be read,
// which counts as deleted; of that it still tells the key. After the last event
// of a batch comes Rest.
func (f *InForce) Decode(ev store.Event) (Change, error) {
	ch, err := Decode(ev)
	if err != nil {
		ch.Value = nil
	}
	switch k := ch.Key.(type) {
	case model.RuleKey:
		if ch.Value != nil {
			f.rules[k] = ch.Value
		} else {
			delete(f.rules, k)
		}
		ch.Value = f.value(k)
	case StagedKey:
		s, there := ch.Value.(StagedRule)
		f.stage(model.RuleKey(k), s, there || err != nil)
	case ReplacementKey:
		r, _ := ch.Value.(Replacement)
		f.finish(model.PolicyKey(k), r.Done)
	}
	return ch, err
}

// finish enters whether what is staged for a policy is in force.
func (f *InForce) finish(p model.PolicyKey, done bool) {
	if done == f.done[p] {
		return
	}
	if f.done[p] = done; !done {
		delete(f.done, p)
	}
	for k := range f.staged[p] {
		f.affected[k] = true
	}
}

// stage enters a staged rule, or that it is not there.
func (f *InForce) stage(k model.RuleKey, s StagedRule, there bool) {
	p := k.PolicyKey()
	if f.done[p] {
		f.affected[k] = true
	}
	if !there {
		if delete(f.staged[p], k); len(f.staged[p]) == 0 {
			delete(f.staged, p)
		}
		return
	}
	if f.staged[p] == nil {
		f.staged[p] = map[model.RuleKey]any{}
	}
	f.staged[p][k] = nil
	if s.Rule != nil {
		f.staged[p][k] = *s.Rule
	}
}

// Rest returns the changes of rules that follow from events since the last call, and
// that no call of Decode has returned.
func (f *InForce) Rest() []Change {
	if len(f.affected) == 0 {
		return nil
	}
	out := make([]Change, 0, len(f.affected))
	for k := range f.affected {
		out = append(out, Change{Key: k, Value: f.value(k)})
	}
	f.affected = map[model.RuleKey]bool{}
	return out
}

// value returns the rule in force; nil = none.
func (f *InForce) value(k model.RuleKey) any {
	if f.done[k.PolicyKey()] {
		if v, ok := f.staged[k.PolicyKey()][k]; ok {
			return v
		}
	}
	return f.rules[k]
}

// Staged returns how many rules are staged for a policy.
func (f *InForce) Staged(p model.PolicyKey) int { return len(f.staged[p]) }
