package statemirror

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// PaceEntries is by how many entries of policy (desired.Weigh) one pass changes a data
// plane, but for one set that has waited for its turn.
const PaceEntries = 16384

// PolicyPacer keeps big changes of policy from holding up all others: passes make what is
// small so first, and sets that differ by much in turn, one a pass, with as much time
// between two of these as the former took. Until its turn a set stays as it was, for
// the ports that had it; a port that had another set keeps that, and a new one is
// closed: no port gets more than it had, and no policy is put in force that was not
// wanted in full. One goroutine uses it.
type PolicyPacer struct {
	sets    desired.Map[desired.PolicySetID, *desired.PolicySet] // that the data plane was given last
	ports   desired.Map[string, *desired.Port]
	known   bool
	waiting map[desired.PolicySetID]uint64 // sets that wait, by who came first
	came    uint64
	bigNext bool      // what is small has been made so: now who waits longest
	rest    time.Time // until when no step may run
	closed  *desired.PolicySet
	most    int // PaceEntries, but in tests
}

// NewPolicyPacer returns the Pace of a data plane of which nothing is known: the first step is
// a whole desired state.
func NewPolicyPacer() *PolicyPacer { return &PolicyPacer{most: PaceEntries} }

// Step is what one pass is to make of a desired state.
type Step struct {
	Want  desired.Host
	Waits map[string]driver.PortStatus // ports whose policies wait
	big   bool
}

// Next is the next step towards a desired state, which is all of it if it differs by little.
func (p *PolicyPacer) Next(want desired.Host, now time.Time) Step {
	step := Step{Want: want}
	if !p.known {
		clear(p.waiting)
		return step
	}
	held := p.choose(&step, now)
	if len(held) == 0 {
		return step
	}
	sets := want.PolicySets
	for id, was := range held {
		sets = p.restore(sets.Delete(id), id, was)
	}
	shut := p.denyAll(want)
	ports := want.Ports
	step.Waits = map[string]driver.PortStatus{}
	wait := driver.PortStatus{Err: model.Errorf(model.ErrUnavailable, "its policies have changed by more than %d entries in all and are queued", PaceEntries)}
	for name, o := range want.Ports.All() {
		if _, waits := held[o.Policies]; !waits || o.Policies == 0 {
			continue
		}
		step.Waits[name] = wait
		old, had := p.ports.Get(name)
		if had && old.Policies == o.Policies && old.Endpoint == o.Endpoint {
			continue // the set is as it was
		}
		as := *o
		as.Policies = shut.ID
		if had && old.Endpoint == o.Endpoint {
			if kept, ok := p.keepSet(sets, old.Policies); ok {
				sets, as.Policies = kept, old.Policies
			}
		}
		if as.Policies == shut.ID {
			sets = sets.Set(shut.ID, shut)
		}
		if had && *old == as {
			ports = ports.Set(name, old)
		} else {
			ports = ports.Set(name, &as)
		}
	}
	step.Want.PolicySets, step.Want.Ports = sets, ports
	return step
}

// Statuses are a data plane's report of a step, in which no port with waiting policies is
// programmed.
func (s Step) Statuses(of driver.PortStatuses) driver.PortStatuses {
	waits := map[string]driver.PortStatus{}
	for name, st := range s.Waits {
		if of.Err(name) == nil {
			waits[name] = st
		}
	}
	return of.With(waits)
}

// Problems tells of the ports whose policies wait.
func (s Step) Problems() []compile.Problem {
	if len(s.Waits) == 0 {
		return nil
	}
	return []compile.Problem{{Object: "policies that wait", Text: fmt.Sprintf(
		"the policies of %d containers have changed by more than %d entries in all and are applied in turn; until then these containers keep their policies, and new ones are closed", len(s.Waits), PaceEntries)}}
}

// choose returns the sets that wait, with what they were.
func (p *PolicyPacer) choose(step *Step, now time.Time) map[desired.PolicySetID]*desired.PolicySet {
	type change struct {
		id     desired.PolicySetID
		old    *desired.PolicySet
		weight int
	}
	var changes []change
	all, oldest := 0, change{}
	for c := range step.Want.PolicySets.Diff(p.sets) {
		x := change{c.Key, c.Old, desired.CountDifferences(c.Old, c.New)}
		if x.weight == 0 || c.Has && c.New.Audited != "" {
			continue
		}
		changes, all = append(changes, x), all+x.weight
	}
	if all <= p.most {
		clear(p.waiting)
		return nil
	}
	before := p.waiting
	p.waiting = map[desired.PolicySetID]uint64{}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.weight-b.weight, cmp.Compare(a.id, b.id)) })
	for _, x := range changes {
		if at, ok := before[x.id]; ok && (oldest.weight == 0 || at < before[oldest.id]) {
			oldest = x
		}
	}
	left := p.most
	held := map[desired.PolicySetID]*desired.PolicySet{}
	step.big = p.bigNext && !now.Before(p.rest) && oldest.weight > 0
	for _, x := range changes {
		switch {
		case step.big && x.id == oldest.id:
		case x.weight <= left:
			left -= x.weight
		default:
			held[x.id] = x.old
			at, ok := before[x.id]
			if !ok {
				p.came++
				at = p.came
			}
			p.waiting[x.id] = at
		}
	}
	return held
}

// restore puts a set as it was, and the audits that it had.
func (p *PolicyPacer) restore(sets desired.Map[desired.PolicySetID, *desired.PolicySet], id desired.PolicySetID, was *desired.PolicySet) desired.Map[desired.PolicySetID, *desired.PolicySet] {
	if was == nil {
		return sets
	}
	sets = sets.Set(id, was)
	for _, a := range was.Audits {
		if old, ok := p.sets.Get(a); ok {
			if _, there := sets.Get(a); !there {
				sets = sets.Set(a, old)
			}
		}
	}
	return sets
}

// keepSet has a set there that a port had; not if its number is another set's by now.
func (p *PolicyPacer) keepSet(sets desired.Map[desired.PolicySetID, *desired.PolicySet], id desired.PolicySetID) (desired.Map[desired.PolicySetID, *desired.PolicySet], bool) {
	if id == 0 {
		return sets, true
	}
	was, had := p.sets.Get(id)
	if !had {
		return sets, false
	}
	if now, there := sets.Get(id); there {
		return sets, now.Name == was.Name
	}
	return p.restore(sets, id, was), true
}

// denyAll is a set that denies everything, under an unused number.
func (p *PolicyPacer) denyAll(want desired.Host) *desired.PolicySet {
	for id := desired.PolicySetID(math.MaxUint32); ; id-- {
		_, taken := want.PolicySets.Get(id)
		if was, had := p.sets.Get(id); taken || had && was != p.closed {
			continue
		}
		if p.closed == nil || p.closed.ID != id {
			nothing := []desired.Tier{{Tier: model.TierAdmin, Default: model.Deny}}
			p.closed = &desired.PolicySet{ID: id, Name: "policies that wait", In: nothing, Out: nothing}
		}
		return p.closed
	}
}

// Done notes what a step came to.
func (p *PolicyPacer) Done(step Step, took time.Duration, now time.Time, err error) {
	p.known = err == nil
	if p.sets, p.ports = step.Want.PolicySets, step.Want.Ports; step.big {
		p.rest = now.Add(took)
	}
	p.bigNext = len(p.waiting) > 0 && !now.Before(p.rest)
}

// Due says in how long the next step is due; false = nothing waits.
func (p *PolicyPacer) Due(now time.Time) (time.Duration, bool) {
	return max(0, p.rest.Sub(now)), len(p.waiting) > 0
}
