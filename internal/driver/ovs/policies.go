package ovs

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// policies keeps the flows of policy sets in a ledger. The unit of change is a
// rule, and within a rule an identity: each rule owns its flows, and where the
// flows of several rules have one key the ledger gives it to the smallest ID.
type policies struct {
	ledger *ledger
	names  map[desired.PolicySetID]string
	needs  map[desired.PolicySetID]int   // flows of a set's rules, whether they are in or not
	need   int                           // of all sets together
	closed map[desired.PolicySetID]error // sets that were replaced by denying all
	most   int                           // maxPolicyFlows, but in tests
}

// maxPolicyFlows bounds the flows of a host's rules: some 0.5 GB of memory, and 7 s
// of a processor when all are new (docs/user/limits.md).
const maxPolicyFlows = 1 << 19

func newPolicies(l *ledger) *policies {
	return &policies{
		ledger: l, names: map[desired.PolicySetID]string{}, needs: map[desired.PolicySetID]int{},
		closed: map[desired.PolicySetID]error{}, most: maxPolicyFlows,
	}
}

// update makes the ledger want the flows of the sets of now, given that it
// wants those of old.
func (p *policies) update(c pipeline.Config, old, now desired.Map[desired.PolicySetID, *desired.PolicySet]) {
	changed := map[desired.PolicySetID]desired.Change[desired.PolicySetID, *desired.PolicySet]{}
	for ch := range now.Diff(old) {
		changed[ch.Key] = ch
		for r := range ruleChanges(ch.Old, ch.New) {
			p.count(ch.Key, r)
		}
		if ch.New == nil {
			delete(p.names, ch.Key)
		} else {
			p.names[ch.Key] = ch.New.Name
		}
	}
	tooMany := p.tooMany()
	for id, err := range p.closed { // what was too much may fit now
		if _, ok := changed[id]; !ok && isTooMany(err) && tooMany[id] == nil {
			s, _ := now.Get(id)
			changed[id] = desired.Change[desired.PolicySetID, *desired.PolicySet]{Key: id, Old: s, New: s, Had: true, Has: true}
		}
	}
	for id := range tooMany {
		if _, ok := changed[id]; !ok {
			s, _ := now.Get(id)
			changed[id] = desired.Change[desired.PolicySetID, *desired.PolicySet]{Key: id, Old: s, New: s, Had: true, Has: true}
		}
	}
	for id, ch := range changed {
		p.change(c, id, ch.Old, ch.New, tooMany[id])
	}
}

func (p *policies) count(id desired.PolicySetID, r ruleChange) {
	by := 0
	if r.new != nil {
		by += pipeline.FlowsOf(r.new)
	}
	if r.old != nil {
		by -= pipeline.FlowsOf(r.old)
	}
	p.need += by
	if p.needs[id] += by; p.needs[id] == 0 {
		delete(p.needs, id)
	}
}

// tooManyError is why a set is closed that would take more flows than are left.
type tooManyError struct{ need, all, most int }

func (e *tooManyError) Error() string {
	return fmt.Sprintf("its rules take %d flows, and those of all policies on this host %d; at most %d are possible (docs/user/limits.md)", e.need, e.all, e.most)
}

func (e *tooManyError) Unwrap() error { return model.ErrExhausted }

func isTooMany(err error) bool {
	_, ok := err.(*tooManyError) //nolint:errorlint // it is never wrapped
	return ok
}

// tooMany chooses the sets that are closed so that the others fit: the largest
// ones, whatever came first.
func (p *policies) tooMany() map[desired.PolicySetID]error {
	if p.need <= p.most {
		return nil
	}
	var ids []desired.PolicySetID
	for id := range p.needs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b desired.PolicySetID) int {
		return cmp.Or(cmp.Compare(p.needs[b], p.needs[a]), cmp.Compare(a, b))
	})
	out, left := map[desired.PolicySetID]error{}, p.need
	for _, id := range ids {
		if left <= p.most {
			break
		}
		out[id] = &tooManyError{p.needs[id], p.need, p.most}
		left -= p.needs[id]
	}
	return out
}

// change brings one set from old to now; tooMany says why it cannot be in.
func (p *policies) change(c pipeline.Config, id desired.PolicySetID, old, now *desired.PolicySet, tooMany error) {
	frame := owner{kind: pipeline.KindDefault, id: uint64(id)}
	was := old // whose rules are in the ledger
	if p.closed[id] != nil {
		was = nil
	}
	if now == nil {
		delete(p.closed, id)
		p.rules(c, was, nil)
		p.ledger.set(frame, nil)
		return
	}
	flows, err := pipeline.SetFrame(now)
	for r := range ruleChanges(was, now) {
		if err == nil && r.new != nil {
			err = pipeline.CheckRule(r.new)
		}
	}
	if err == nil {
		err = tooMany
	}
	if err != nil {
		p.rules(c, was, nil)
		p.ledger.set(frame, pipeline.ClosedSet(id))
		p.closed[id] = err
		return
	}
	delete(p.closed, id)
	p.ledger.set(frame, flows)
	p.rules(c, was, now)
}

// rules changes the flows of the rules in which two versions of a set differ.
func (p *policies) rules(c pipeline.Config, old, now *desired.PolicySet) {
	for r := range ruleChanges(old, now) {
		o := ruleOwner(r.place, r.id)
		switch {
		case r.new == nil:
			p.ledger.set(o, nil)
		case r.moved || r.old == nil || !onlyPeersDiffer(r.old, r.new):
			p.ledger.set(o, pipeline.Rule(c, r.place, r.new))
		default:
			var gone, come []model.Identity
			for id, has := range r.new.Identities.Diff(r.old.Identities) {
				if has {
					come = append(come, id)
				} else {
					gone = append(gone, id)
				}
			}
			p.ledger.remove(o, pipeline.RulePeers(c, r.place, r.old, gone))
			p.ledger.add(o, pipeline.RulePeers(c, r.place, r.new, come))
		}
	}
}

// onlyPeersDiffer tells whether two versions of a rule have the same flows but
// for those of identities.
func onlyPeersDiffer(a, b *desired.Rule) bool {
	other := *a
	other.Identities = b.Identities
	return !a.AnyPeer && other.Equal(b)
}

func ruleOwner(p pipeline.Place, id string) owner {
	at := uint64(p.Set)<<8 | uint64(p.Tier)<<1
	if p.Out {
		at |= 1
	}
	return owner{kind: pipeline.KindRule, id: at, name: id}
}

// ruleChange is a rule in which two versions of a set differ. moved means that
// its flows differ even if it does not.
type ruleChange struct {
	place    pipeline.Place
	id       string
	old, new *desired.Rule
	moved    bool
}

// ruleChanges yields the rules in which two versions of a set differ; either may
// be nil. It costs what differs.
func ruleChanges(old, now *desired.PolicySet) iter.Seq[ruleChange] {
	return func(yield func(ruleChange) bool) {
		for _, out := range []bool{false, true} {
			a, b := tiersOf(old, out), tiersOf(now, out)
			for i := range max(len(a), len(b)) {
				place := pipeline.Place{Out: out, Tier: i, Last: i == len(b)-1}
				var from, to desired.Rules
				if i < len(a) {
					from, place.Set = a[i].Rules, old.ID
				}
				if i < len(b) {
					to, place.Set = b[i].Rules, now.ID
				}
				if i < len(a) && i < len(b) && place.Last != (i == len(a)-1) {
					if !movedRules(place, from, to, yield) {
						return
					}
					continue
				}
				for ch := range to.Diff(from) {
					if !yield(ruleChange{place: place, id: ch.Key, old: ch.Old, new: ch.New}) {
						return
					}
				}
			}
		}
	}
}

// movedRules yields all rules of a tier that has become the last, or was it.
func movedRules(place pipeline.Place, from, to desired.Rules, yield func(ruleChange) bool) bool {
	for id, r := range from.All() {
		if _, stays := to.Get(id); !stays && !yield(ruleChange{place: place, id: id, old: r}) {
			return false
		}
	}
	for id, r := range to.All() {
		was, _ := from.Get(id)
		if !yield(ruleChange{place: place, id: id, old: was, new: r, moved: true}) {
			return false
		}
	}
	return true
}

func tiersOf(s *desired.PolicySet, out bool) []desired.Tier {
	switch {
	case s == nil:
		return nil
	case out:
		return s.Out
	}
	return s.In
}

// problems lists what could not be made true as wanted.
func (p *policies) problems() []driver.Problem {
	var out []driver.Problem
	for id, err := range p.closed {
		out = append(out, driver.Problem{Object: "policy set " + p.names[id], Err: fmt.Errorf("everything is denied in its place: %w", err)})
	}
	return out
}
