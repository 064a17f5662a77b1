package ovs

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// policies keeps the flows of policy sets in a ledger. The unit of change is a
// rule, and within a rule an identity: each rule owns its flows, and where the
// flows of several rules have one key the ledger gives it to the smallest ID.
type policies struct {
	ledger  *ledger
	names   map[desired.PolicySetID]string
	needs   map[desired.PolicySetID]int   // flows of a set's rules in one form, whether they are in or not
	counted map[desired.PolicySetID]int   // the part of total that is a set's
	total   int                           // flows that all sets need
	users   map[desired.PolicySetID]int   // how many ports refer to a set
	audited map[desired.PolicySetID]int   // how many sets have a set audited
	fresh   map[desired.PolicySetID]bool  // sets that came with the last update
	in      map[setForm]bool              // forms whose rules the ledger has, of the last version
	closed  map[desired.PolicySetID]error // sets that were replaced by denying all, or left out of the audit
	crowded map[desired.PolicySetID]error // sets with more audited sets than are evaluated
	most    int                           // maxPolicyFlows, but in tests
}

// setForm is one of the two ways in which a set's rules are flows: as they decide,
// and as they are evaluated for the audit. A set that is audited and that no
// port refers to is in the second form only.
type setForm struct {
	set   desired.PolicySetID
	audit bool
}

// maxPolicyFlows bounds the flows of a host's rules: some 0.5 GB of memory, and 7 s
// of a processor when all are new (docs/reference/restrictions.md).
const maxPolicyFlows = model.MaxPolicyFlows

func newPolicies(l *ledger) *policies {
	return &policies{
		ledger: l, names: map[desired.PolicySetID]string{}, needs: map[desired.PolicySetID]int{}, counted: map[desired.PolicySetID]int{}, most: maxPolicyFlows,
		users: map[desired.PolicySetID]int{}, audited: map[desired.PolicySetID]int{}, fresh: map[desired.PolicySetID]bool{}, in: map[setForm]bool{},
		closed: map[desired.PolicySetID]error{}, crowded: map[desired.PolicySetID]error{},
	}
}

// wanted reports whether a set is to be there in a form.
func (p *policies) wanted(f setForm) bool {
	if f.audit {
		return p.audited[f.set] > 0
	}
	return p.audited[f.set] == 0 || p.users[f.set] > 0
}

// need is how many flows a set's rules take.
func (p *policies) need(id desired.PolicySetID) int {
	n := 0
	for _, audit := range []bool{false, true} {
		if p.wanted(setForm{id, audit}) {
			n += p.needs[id]
		}
	}
	return n
}

// update makes the ledger want the flows of now's policy, given that it wants those
// of old's.
func (p *policies) update(c pipeline.Config, old, now desired.Host) {
	changed := map[desired.PolicySetID]bool{}
	clear(p.fresh)
	for ch := range now.Ports.Diff(old.Ports) {
		for _, port := range []*desired.Port{ch.Old, ch.New} {
			if port == nil || port.Policies == 0 {
				continue
			}
			by := 1
			if port == ch.Old {
				by = -1
			}
			change(p.users, port.Policies, by)
			changed[port.Policies] = changed[port.Policies] || p.audited[port.Policies] > 0
		}
	}
	for ch := range now.PolicySets.Diff(old.PolicySets) {
		changed[ch.Key] = true
		if !ch.Had {
			p.fresh[ch.Key] = true
		}
		p.compare(ch.Key, ch.Old, ch.New, changed)
	}
	for id := range changed {
		n := p.need(id)
		p.total += n - p.counted[id]
		if p.counted[id] = n; n == 0 {
			delete(p.counted, id)
		}
	}
	tooMany := p.chooseClosed()
	for id, err := range p.closed { // what was too much may fit now
		changed[id] = changed[id] || isTooMany(err) && tooMany[id] == nil
	}
	for id := range tooMany {
		changed[id] = true
	}
	for id, is := range changed {
		if is {
			was, _ := old.PolicySets.Get(id)
			s, _ := now.PolicySets.Get(id)
			p.change(c, id, was, s, tooMany[id])
		}
	}
}

// compare counts what differs between two versions of a set, and marks the sets
// that its audits concern.
func (p *policies) compare(id desired.PolicySetID, old, now *desired.PolicySet, changed map[desired.PolicySetID]bool) {
	for r := range ruleChanges(old, now) {
		by := 0
		if r.new != nil {
			by += pipeline.FlowsOf(r.new)
		}
		if r.old != nil {
			by -= pipeline.FlowsOf(r.old)
		}
		change(p.needs, id, by)
	}
	delete(p.crowded, id)
	delete(p.names, id)
	for by, s := range map[int]*desired.PolicySet{-1: old, 1: now} {
		if s != nil {
			for _, a := range s.Audits {
				change(p.audited, a, by)
				changed[a] = true
			}
		}
	}
	if now == nil {
		return
	}
	p.names[id] = now.Name
	if n := len(now.Audits); n > pipeline.MaxAudits {
		p.crowded[id] = model.Errorf(model.ErrExhausted, "%d other policies are audited, and only the first %d are evaluated", n, pipeline.MaxAudits)
	}
}

func change(m map[desired.PolicySetID]int, id desired.PolicySetID, by int) {
	if m[id] += by; m[id] == 0 {
		delete(m, id)
	}
}

// tooManyError is why a set is closed that would take more flows than are left.
type tooManyError struct{ need, all, most int }

func (e *tooManyError) Error() string {
	return fmt.Sprintf("its rules take %d flows, and those of all policies on this host %d; at most %d are possible (docs/reference/restrictions.md)", e.need, e.all, e.most)
}

func (e *tooManyError) Unwrap() error { return model.ErrExhausted }

func isTooMany(err error) bool {
	_, ok := err.(*tooManyError) //nolint:errorlint // it is never wrapped
	return ok
}

// chooseClosed chooses the sets that are closed so that the others fit: first sets that
// are only audited, and of these and of the others the largest first, whichever came
// first.
func (p *policies) chooseClosed() map[desired.PolicySetID]error {
	if p.total <= p.most {
		return nil
	}
	ids := slices.SortedFunc(maps.Keys(p.counted), func(a, b desired.PolicySetID) int {
		decides := func(id desired.PolicySetID) int {
			if p.wanted(setForm{set: id}) {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(decides(a), decides(b)), cmp.Compare(p.counted[b], p.counted[a]), cmp.Compare(a, b))
	})
	out, left := map[desired.PolicySetID]error{}, p.total
	for _, id := range ids {
		if left <= p.most {
			break
		}
		out[id] = &tooManyError{p.counted[id], p.total, p.most}
		left -= p.counted[id]
	}
	return out
}

// listen adds the flows that evaluate audited sets, or takes them away.
func (p *policies) listen(on bool) {
	var flows []openflow.Flow
	if on {
		flows = pipeline.AuditEntryFlows()
	}
	p.ledger.set(owner{kind: pipeline.KindAudit, name: "hooks"}, flows)
}

// change brings one set from old to now; chooseClosed says why it cannot be in.
func (p *policies) change(c pipeline.Config, id desired.PolicySetID, old, now *desired.PolicySet, tooMany error) {
	delete(p.closed, id)
	err := p.check(id, old, now)
	if err == nil {
		err = tooMany
	}
	if now != nil && err != nil {
		p.closed[id] = err
	}
	for _, f := range []setForm{{id, false}, {id, true}} {
		was, is := old, now
		if !p.in[f] {
			was = nil
		}
		there := now != nil && p.wanted(f)
		if !there || err != nil {
			is = nil
		}
		p.rules(c, f.audit, was, is)
		if delete(p.in, f); is != nil {
			p.in[f] = true
		}
		var flows, audits []openflow.Flow
		switch {
		case is != nil:
			flows, _ = pipeline.SetBaseFlows(is, f.audit) // checked above
		case there && !f.audit:
			flows = pipeline.ClosedSet(id)
		}
		p.ledger.set(owner{kind: pipeline.KindDefault, id: formNumber(f)}, flows)
		if there && !f.audit {
			audits = pipeline.Audits(now)
		}
		if !f.audit {
			p.ledger.set(owner{kind: pipeline.KindAudit, id: uint64(id)}, audits)
		}
	}
}

// check tells what flows cannot express of a set; when the set is in, it looks only
// at the rules that have changed.
func (p *policies) check(id desired.PolicySetID, old, now *desired.PolicySet) error {
	if now == nil {
		return nil
	}
	if !p.in[setForm{id, false}] && !p.in[setForm{id, true}] {
		old = nil
	}
	if _, err := pipeline.SetBaseFlows(now, false); err != nil {
		return err
	}
	for r := range ruleChanges(old, now) {
		if r.new == nil {
			continue
		}
		if err := pipeline.CheckRule(r.new); err != nil {
			return err
		}
	}
	return nil
}

// rules changes the flows of the rules in which two versions of a set differ.
func (p *policies) rules(c pipeline.Config, audit bool, old, now *desired.PolicySet) {
	for r := range ruleChanges(old, now) {
		r.place.Audit = audit
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

// onlyPeersDiffer reports whether two versions of a rule have the same flows but
// for those of identities.
func onlyPeersDiffer(a, b *desired.Rule) bool {
	other := *a
	other.Identities = b.Identities
	return !a.AnyPeer && other.Equal(b)
}

func ruleOwner(p pipeline.RulePosition, id string) owner {
	at := formNumber(setForm{p.Set, p.Audit}) | uint64(p.Tier)<<1
	if p.Out {
		at |= 1
	}
	return owner{kind: pipeline.KindRule, id: at, name: id}
}

// formNumber leaves the lower 7 bits to tiers and directions.
func formNumber(f setForm) uint64 {
	n := uint64(f.set) << 8
	if f.audit {
		n |= 1 << 7
	}
	return n
}

// ruleChange is a rule in which two versions of a set differ. moved means that the
// rule's flows differ even if the rule does not.
type ruleChange struct {
	place    pipeline.RulePosition
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
				place := pipeline.RulePosition{Out: out, Tier: i, Last: i == len(b)-1}
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

// movedRules yields all rules of a tier that has become the last, or is it no more.
func movedRules(place pipeline.RulePosition, from, to desired.Rules, yield func(ruleChange) bool) bool {
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
	tell := func(id desired.PolicySetID, what string, err error) {
		out = append(out, driver.Problem{Object: "policy set " + p.names[id], Err: fmt.Errorf("%s: %w", what, err)})
	}
	for id, err := range p.closed {
		if p.wanted(setForm{set: id}) {
			tell(id, "everything is denied in its place", err)
		} else {
			tell(id, "it is not evaluated for the audit", err)
		}
	}
	for id, err := range p.crowded {
		tell(id, "audit", err)
	}
	return out
}
