package ebpf

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// staleGrace is how long what packets may still be looking up stays after the
// last header referred to it.
const staleGrace = 100 * time.Millisecond

// policies are the policy sets and their rules. Driver.mu guards it.
type policies struct {
	Sets  table[uint32, policySet] `map:"sets"`
	Rules ruleTable                `map:"rules"`

	refused   map[desired.PolicySetID]refusal    // sets that do not fit
	index     map[desired.PolicySetID]*ruleIndex // of sets whose rules are all in
	unneeded  map[*ruleIndex]bool                // those of them with entries that are to be taken out
	cleaned   map[desired.PolicySetID]time.Time  // when entries of a set were last deleted or replaced without a new generation; forgotten after staleGrace
	instance  uint32                             // last one used
	stale     []staleInstance                    // that no set refers to any more
	ruleIDs   map[uint64]string                  // by number
	rulesLeft int                                // how many rules the last clean-up of ruleIDs has left
	rewritten map[desired.PolicySetID]bool       // in an Apply, sets whose connections are judged again
}

// staleInstance is what the rules of a set that is gone stand under.
type staleInstance struct {
	instance uint32
	since    time.Time
}

func newPolicies() *policies {
	return &policies{
		refused: map[desired.PolicySetID]refusal{}, index: map[desired.PolicySetID]*ruleIndex{}, unneeded: map[*ruleIndex]bool{},
		cleaned: map[desired.PolicySetID]time.Time{}, ruleIDs: map[uint64]string{},
	}
}

// load initialises the state from the tables.
func (p *policies) load() {
	used := map[uint32]bool{}
	for _, s := range p.Sets.have {
		used[s.Instance] = true
		p.instance = max(p.instance, s.Instance)
	}
	for v := range p.Rules.of {
		p.instance = max(p.instance, v)
		if !used[v] {
			p.stale = append(p.stale, staleInstance{instance: v})
		}
	}
}

// begin resets the state of the last Apply.
func (p *policies) begin() { p.rewritten = map[desired.PolicySetID]bool{} }

func (p *policies) put(run *applyRun) error {
	defer p.forgetRules(run)
	for c := range run.want.PolicySets.Diff(run.last.PolicySets) {
		was := p.refused[c.Key]
		delete(p.refused, c.Key)
		if !c.Has || c.New.Audited != "" { // the programs need not know of it
			continue
		}
		err := p.refuseAgain(was, c.New)
		if err == nil {
			err = p.putSet(c.Key, c.New)
		}
		if err == nil {
			continue
		}
		if fatal(err) {
			return err
		}
		p.refused[c.Key] = refusal{c.New, err}
		run.problem(fmt.Sprintf("policy %d", c.Key), err)
	}
	return nil
}

// refusal is why a set is not held.
type refusal struct {
	set *desired.PolicySet
	err error
}

// noRoomError says that a set needs so many entries more than there are.
type noRoomError struct {
	error
	fresh int
}

func (e noRoomError) Unwrap() error { return e.error }

// refuseAgain tells at once that a set that did not fit does not fit: to work out all of its
// entries to see that takes seconds, for which every other change would wait as long as
// somebody leaves it so.
func (p *policies) refuseAgain(was refusal, s *desired.PolicySet) error {
	var full noRoomError
	if was.set != s || !errors.As(was.err, &full) {
		return nil
	}
	return p.room(full.fresh)
}

// maxRuleIDs bounds the memory for ids of rules that are gone: counters and
// decisions may still speak of them.
const maxRuleIDs = 20000

// learn remembers the id behind the number of a rule's counters.
func (p *policies) learn(r *desired.Rule) { p.ruleIDs[ruleNumber(r.ID)] = r.ID }

// forgetRules leaves only the rules that are wanted when twice as many, and more
// than maxRuleIDs, have gathered.
func (p *policies) forgetRules(run *applyRun) {
	if len(p.ruleIDs) <= max(maxRuleIDs, 2*p.rulesLeft) {
		return
	}
	defer func() { p.rulesLeft = len(p.ruleIDs) }()
	clear(p.ruleIDs)
	for _, s := range run.want.PolicySets.All() {
		for _, rules := range rulesOf(s) {
			for _, r := range rules.All() {
				p.learn(r)
			}
		}
	}
}

// putSet writes what differs of a set and puts it in force by one write, so that
// every packet meets either the old rules or the new ones.
func (p *policies) putSet(id desired.PolicySetID, s *desired.PolicySet) error {
	if id == 0 || s.ID != id {
		return model.Errorf(model.ErrInvalid, "policy set %d has the id %d", id, s.ID)
	}
	for _, tiers := range [][]desired.Tier{s.In, s.Out} {
		if len(tiers) > maxTiers {
			return model.Errorf(model.ErrExhausted, "policy set %d has %d tiers; this data plane supports %d", id, len(tiers), maxTiers)
		}
	}
	x := p.index[id]
	if x != nil && x.set == s {
		return nil
	}
	head, had := p.Sets.have[uint32(id)]
	if x == nil {
		if !had {
			p.instance++
			head = policySet{Instance: p.instance}
		}
		x = newRuleIndex(&p.Rules, head)
		// Until all is written the index has no owner: an interrupted write starts again.
	}
	delete(p.index, id)
	delete(p.unneeded, x)
	err := p.activateIndex(id, x, s, had)
	switch {
	case err == nil:
		p.index[id] = x
		if len(x.stale) > 0 {
			p.unneeded[x] = true
		}
	case !had:
		p.markStale(head.Instance)
	}
	return err
}

// activateIndex makes a set of what its index holds.
func (p *policies) activateIndex(id desired.PolicySetID, x *ruleIndex, s *desired.PolicySet, had bool) error {
	e := x.edit(p.learn)
	if err := e.to(s); err != nil {
		return fmt.Errorf("policy set %d: %w", id, err)
	}
	if time.Since(x.switched) > staleGrace {
		x.settled = x.head.Generation
	}
	writes, fresh, unsettled := e.plan()
	if unsettled {
		waitForPackets()
		x.settled = x.head.Generation
	}
	head := e.header(s)
	if same := x.head; had && len(writes) == 0 {
		if same.Generation, same.Audits = same.Generation+1, head.Audits; same == head {
			e.collectUnneeded()
			same.Generation--
			if same != x.head {
				p.rejudgeConnections()
				p.cleaned[id] = time.Now()
			}
			x.head = same
			return p.Sets.put(uint32(id), same)
		}
	}
	if err := p.room(fresh); err != nil {
		return err
	}
	p.rejudgeConnections()
	for _, w := range writes {
		if err := p.Rules.put(w.k, w.v); err != nil {
			return err
		}
	}
	if err := p.Sets.put(uint32(id), head); err != nil {
		return err
	}
	p.rewritten[id] = true
	x.head, x.switched = head, time.Now()
	e.collectUnneeded()
	return nil
}

// rejudgeConnections has connections judged again whose sets lost or replaced an entry a moment ago: new
// entries take its memory, and a packet that had just found it may have read the new one
// instead.
func (p *policies) rejudgeConnections() {
	for id, at := range p.cleaned {
		if time.Since(at) < staleGrace {
			p.rewritten[id] = true
		} else {
			delete(p.cleaned, id)
		}
	}
}

// room refuses what does not fit before anything is written.
func (p *policies) room(fresh int) error {
	if p.Rules.room(fresh) == nil {
		return nil
	}
	waitForPackets()
	p.purgeStale(time.Now())
	if err := p.Rules.room(fresh); err != nil {
		return noRoomError{err, fresh}
	}
	return nil
}

// waitForPackets waits until no packet is under way that began before.
func waitForPackets() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL, which waits for a grace period of RCU
	if _, _, err := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); err != 0 {
		time.Sleep(staleGrace) //nolint:forbidigo // processors that are left alone (nohz_full) refuse it
	}
}

func (p *policies) markStale(instance uint32) {
	p.stale = append(p.stale, staleInstance{instance, time.Now()})
}

// purgeStale removes what nothing has referred to since before.
func (p *policies) purgeStale(before time.Time) {
	w := p.Rules.w
	fault, changes, global := w.fault, w.changes, w.global
	w.fault = nil
	defer func() { w.fault, w.changes, w.global = fault, changes, global }()
	keep := p.stale[:0]
	for _, v := range p.stale {
		ok := !v.since.After(before)
		for k := range p.Rules.of[v.instance] {
			if !ok {
				break
			}
			ok = p.Rules.drop(k) == nil
		}
		if !ok {
			keep = append(keep, v)
		}
	}
	p.stale = keep
	for x := range p.unneeded {
		if x.switched.After(before) {
			continue
		}
		p.cleaned[x.set.ID] = time.Now()
		if x.removeUnneeded() == nil { // or it is tried again
			delete(p.unneeded, x)
		}
	}
}

func (p *policies) remove(run *applyRun) error {
	for id, s := range p.Sets.have {
		if s, ok := run.want.PolicySets.Get(desired.PolicySetID(id)); ok && s.Audited == "" {
			continue
		}
		delete(p.refused, desired.PolicySetID(id))
		if err := p.Sets.del(id); err != nil {
			return err
		}
		delete(p.unneeded, p.index[desired.PolicySetID(id)])
		delete(p.index, desired.PolicySetID(id))
		p.markStale(s.Instance)
	}
	return nil
}

// setIn is a set whose rules are in; nil = they are not.
func (p *policies) setIn(id desired.PolicySetID) *desired.PolicySet {
	if x := p.index[id]; x != nil {
		return x.set
	}
	return nil
}
