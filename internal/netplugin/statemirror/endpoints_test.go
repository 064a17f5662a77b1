package statemirror

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// change is an endpoint's that is there, or is deleted.
func change(e model.Endpoint, there bool) tables.Change {
	c := tables.Change{Key: e.Key}
	if there {
		c.Value = e
	}
	return c
}

// TestEndpointChangesByHost: changes of this host's endpoints matter at once, and which
// mirrors concern the host is decided again when it gets or loses one. Hidden endpoints
// matter to nothing. The agent hears of the loss of one that is not hidden.
func TestEndpointChangesByHost(t *testing.T) {
	x := newManualState(t)
	agent := &countingAgent{}
	x.Endpoints.Agent = agent
	own := testEndpoint
	own.Key.ID, own.MAC = "own", model.MAC{2, 2, 10, 1, 1, 9}
	moved := own
	moved.Host = "h2"
	for _, c := range []struct {
		what       string
		ch         tables.Change
		hide       bool
		matters    urgency
		reconsider bool
		lost       int
		has        bool // in the mirror as this host's
	}{
		{"another host's", change(x.other, true), false, whenQuiet, false, 0, false},
		{"another host's is deleted", change(x.other, false), false, whenQuiet, false, 0, false},
		{"a new one", change(own, true), false, atOnce, true, 0, true},
		{"the same again", change(own, true), false, atOnce, false, 0, true},
		{"moves away", change(moved, true), false, atOnce, true, 0, false},
		{"moves back", change(own, true), false, atOnce, true, 0, true},
		{"deleted", change(own, false), false, atOnce, true, 1, false},
		{"deleted again", change(own, false), false, whenQuiet, false, 1, false},
		{"hidden", change(own, true), true, irrelevant, true, 1, true},
		{"hidden and deleted", change(own, false), true, irrelevant, true, 1, false},
	} {
		if c.hide {
			x.Endpoints.Hide(own.Key)
		}
		x.mirrors.reconsider = false
		matters := x.Endpoints.enter(x.single, c.ch.Key.(model.EndpointKey), c.ch)
		if _, has := x.single.endpoints[own.Key]; matters != c.matters || x.mirrors.reconsider != c.reconsider || agent.lost != c.lost || has != c.has {
			t.Errorf("%s: urgency %d, reconsider %v, lost %d, there %v", c.what, matters, x.mirrors.reconsider, agent.lost, has)
		}
		pic, _ := x.comp.Compile(1)
		if _, there := pic.Ports.Get(compile.IfName(own.Key)); there != (c.has && !c.hide) {
			t.Errorf("%s: its port is there: %v", c.what, there)
		}
	}
	x.mirrors.reconsider = true
	for _, there := range []bool{true, false} {
		if x.Endpoints.enter(x.single, x.other.Key, change(x.other, there)); !x.mirrors.reconsider {
			t.Error("another host's change takes back that something concerns this one")
		}
	}
}

// TestForgottenEndpointsStayHidden: an endpoint that no attachment needs any more stays hidden while the
// mirror has it, and is an orphan after a while. One that is gone is dropped later.
func TestForgottenEndpointsStayHidden(t *testing.T) {
	x := newManualState(t)
	e := x.Endpoints
	there, gone, unread := testEndpoint.Key, testEndpoint.Key, testEndpoint.Key
	gone.ID, unread.ID, unread.Network.Name = "gone", "unread", "unread"
	all := []model.EndpointKey{there, gone, unread}
	for i := range 20 { // they are in any order
		gone.ID = model.EndpointID(fmt.Sprintf("gone%d", i))
		all = append(all, gone)
	}
	for _, k := range all {
		e.Forget(k)
	}
	if len(e.hidden) > 0 {
		t.Errorf("forgotten, though they were not hidden: %v", e.hidden)
	}
	hidden := func(when string, want ...model.EndpointKey) {
		t.Helper()
		if got := maps.Clone(e.hidden); len(got) != len(want) || slices.ContainsFunc(want, func(k model.EndpointKey) bool { _, ok := got[k]; return !ok }) {
			t.Errorf("%s: hidden are %v, want %v", when, got, want)
		}
	}
	orphans := func(when string, now time.Time, want ...model.EndpointKey) {
		t.Helper()
		var got []model.EndpointKey
		for _, o := range e.Orphans(now, time.Minute) {
			got = append(got, o.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: orphans are %v, want %v", when, got, want)
		}
	}
	later := time.Now().Add(time.Hour)
	for _, k := range all {
		e.Hide(k)
	}
	e.dropForgotten(later, 0)
	hidden("needed", all...)
	orphans("needed", later)
	for _, k := range all {
		e.Forget(k)
		if e.hidden[k].IsZero() {
			t.Errorf("%s is not forgotten", k)
		}
		e.hidden[k] = later
	}
	e.dropForgotten(later.Add(2*OrphanGrace-1), 0)
	e.dropForgotten(later.Add(time.Hour-1), time.Hour)
	hidden("just forgotten", all...)
	orphans("just forgotten", later.Add(time.Minute-1))
	orphans("forgotten", later.Add(time.Minute), there)
	x.single.ready = false
	e.dropForgotten(later.Add(2*OrphanGrace-1), 0)
	x.single.ready = true
	e.dropForgotten(later.Add(2*OrphanGrace), 0)
	hidden("forgotten", there)
	x.single.ready = false
	e.dropForgotten(later.Add(2*OrphanGrace), 0)
	hidden("in a mirror that is not read")
	e.Hide(there)
	e.Reveal(there)
	hidden("revealed")
}

// TestEndpointsOutsideMirrorsAreMissing: what a mirror that is read does not have is missing; what is not
// known has no group and no addresses.
func TestEndpointsOutsideMirrorsAreMissing(t *testing.T) {
	x := newManualState(t)
	e := x.Endpoints
	there, gone, unread := testEndpoint.Key, testEndpoint.Key, testEndpoint.Key
	gone.ID, unread.ID, unread.Network.Name = "gone", "unread", "unread"
	all := []model.EndpointKey{there, gone, unread}
	in := testEndpoint
	in.Group = "web"
	x.deliver(x.single, store.Batch{Revision: 30, Events: []store.Event{row(t, tables.Endpoints, in, 30)}})
	if missing := e.Missing(all); !maps.Equal(missing, map[model.EndpointKey]bool{gone: true}) {
		t.Errorf("missing are %v", missing)
	}
	if groups := e.Groups(all); !slices.Equal(groups, []model.GroupName{"web", "", ""}) {
		t.Errorf("groups are %q", groups)
	}
	if got := e.Get(all); len(got) != 2 || got[there].MAC != in.MAC || got[gone].MAC == in.MAC {
		t.Errorf("they are %+v", got)
	}
	x.single.ready = false
	if missing := e.Missing(all); len(missing) > 0 {
		t.Errorf("missing before they are read: %v", missing)
	}
}

// TestUnidentifiedEndpointsArePending: an endpoint whose identity is not known is pending, is reported when
// it is pending for a second, and is released by what it waits for.
func TestUnidentifiedEndpointsArePending(t *testing.T) {
	x := newManualState(t)
	agent := &countingAgent{}
	e := x.Endpoints
	e.Agent = agent
	next := withIdentity(testEndpoint.Identity + 1)
	x.endpoint(next.Identity, 20)
	if matters := e.release(); matters != irrelevant || len(e.pending) != 1 || len(e.problems()) != 0 {
		t.Errorf("urgency %d, pending %v, problems %v", matters, e.pending, e.problems())
	}
	e.markOverdue()
	e.markOverdue()
	if p := e.problems(); len(p) != 1 || agent.soon != 1 {
		t.Errorf("problems %v, told %d times", p, agent.soon)
	}
	e.comp.SetIdentity(model.IdentityRecord{ID: next.Identity, Network: next.Key.Network})
	if p := e.problems(); len(p) != 0 {
		t.Errorf("with the identity problems are %v", p)
	}
	if matters := e.release(); matters != atOnce || len(e.pending) != 0 {
		t.Errorf("urgency %d, pending %v", matters, e.pending)
	}
	x.endpoint(next.Identity+1, 21)
	e.releaseRead()
	x.port("all is read", next.Identity+1)
}

// TestReservedIdentitiesNeedNoRecord: identities beside the range of endpoints' have no record to
// wait for.
func TestReservedIdentitiesNeedNoRecord(t *testing.T) {
	x := newManualState(t)
	for id, waits := range map[model.Identity]bool{
		model.IdentityFirst - 1: false, model.IdentityFirst: true, model.IdentityLast: true, model.IdentityLast + 1: false,
	} {
		e := withIdentity(id)
		e.Key.Network.Tenant = "red"
		if got := x.Endpoints.awaits(endpointRow{e, 20}); (got != "") != waits {
			t.Errorf("identity %d waits for %q", id, got)
		}
	}
}
