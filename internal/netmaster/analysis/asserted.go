package analysis

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// asserted is what is known of assertions, and what has changed since verify has tested them.
type asserted struct {
	assertions map[model.AssertionKey]*assertion
	verdicts   map[model.AssertionKey]Verdict
	of         desired.Host // the state that verdicts are about
	members    map[memberKey]*members
	classes    *reachability.Classes

	endpoints map[model.EndpointKey]bool // whose rows have changed
	groups    map[model.GroupKey]bool    // that have come or gone
	addresses bool                       // an address has become an endpoint's, or is one no more
	services  bool                       // something of services has changed, or where endpoints are
	all       bool                       // anything may have changed
}

func newAsserted() *asserted {
	return &asserted{
		assertions: map[model.AssertionKey]*assertion{}, verdicts: map[model.AssertionKey]Verdict{}, members: map[memberKey]*members{},
		endpoints: map[model.EndpointKey]bool{}, groups: map[model.GroupKey]bool{},
	}
}

// memberKey is a subject as an assertion says it.
type memberKey struct {
	scope  assertedScope
	tenant model.TenantName
	text   string
}

// members are the endpoints that a subject selects, in order.
type members struct {
	subject Subject
	scope   assertedScope
	keys    []model.EndpointKey
}

// assertedScope is whose endpoints an assertion is about: all = of all tenants.
type assertedScope struct {
	tenant model.TenantName
	all    bool
}

// Has reports whether a tenant's endpoints are meant.
func (s assertedScope) Has(t model.TenantName) bool { return s.all || s.tenant == t }

// set enters an assertion; value is nil when it is gone.
func (a *asserted) set(k model.AssertionKey, value any) {
	delete(a.assertions, k)
	delete(a.verdicts, k)
	if v, is := value.(model.Assertion); is {
		a.assertions[k] = newAssertion(v)
	}
}

// note notes a change of a row before it is entered. Policies, rules and identities are found in
// what they compile to.
func (a *asserted) note(r *clusterRows, ch tables.Change) {
	if len(a.assertions) == 0 {
		return
	}
	switch k := ch.Key.(type) {
	case model.EndpointKey:
		a.endpoints[k], a.services = true, true
		e, is := ch.Value.(model.Endpoint)
		for _, m := range a.members {
			at, was := slices.BinarySearchFunc(m.keys, k, model.EndpointKey.Compare)
			switch has := is && m.scope.Has(k.Network.Tenant) && m.subject.selects(&e); {
			case has && !was:
				m.keys = slices.Insert(m.keys, at, k)
			case was && !has:
				m.keys = slices.Delete(m.keys, at, at+1)
			}
		}
	case model.GroupKey:
		if _, was := r.groups[k]; was == ch.Deleted() {
			a.groups[k] = true
		}
	case model.ServiceKey, model.ClusterServiceKey, model.ServiceSliceKey, model.NodeName:
		a.services = true
	case tables.GlobalKey, model.TenantName, model.NetworkKey, model.HostName, tables.HostDrainKey, tables.ServiceRangesKey:
		a.all = true
	}
}

// verify brings the verdicts up to date with the compiled rows. An assertion that held is tested
// again only about what may have broken it.
func (r *clusterRows) verify() {
	a := r.asserted
	t := &tester{clusterRows: r, sides: map[sideKey]*askedSide{}}
	changed := t.find()
	for k, x := range a.assertions {
		old, tested := a.verdicts[k]
		switch {
		case !tested, changed && old.State != Holds:
			a.verdicts[k] = t.test(x)
		case changed:
			t.retest(x)
		}
	}
	a.settle(r.state)
	if len(a.members) > 4*len(a.assertions) {
		clear(a.members)
	}
}

// settle forgets what has changed: the verdicts are about a state.
func (a *asserted) settle(of desired.Host) {
	a.of, a.addresses, a.services, a.all = of, false, false, false
	clear(a.endpoints)
	clear(a.groups)
}

// restore is settle with verdicts that were about a state before a change that is reverted.
func (a *asserted) restore(verdicts map[model.AssertionKey]Verdict, of desired.Host) {
	for d := range of.Ports.Diff(a.of.Ports) {
		if isMoved(d) {
			a.classes = nil
		}
	}
	a.verdicts = verdicts
	a.settle(of)
}

// isMoved reports whether an endpoint comes, goes or has other addresses.
func isMoved(d desired.Change[string, *desired.Port]) bool {
	return !d.Had || !d.Has || d.Old.IPv4 != d.New.IPv4 || d.Old.IPv6 != d.New.IPv6 || d.Old.Network != d.New.Network
}

// find finds the endpoints that may connect otherwise than when assertions were tested last. It
// reports whether anything may have changed for assertions.
func (t *tester) find() bool {
	a := t.asserted
	if len(a.assertions) == 0 {
		return false
	}
	for d := range t.state.Networks.Diff(a.of.Networks) {
		a.all = a.all || !d.Had || !d.Has || !d.Old.Equal(d.New)
	}
	for d := range t.state.Ports.Diff(a.of.Ports) {
		a.addresses = a.addresses || isMoved(d)
		if d.Has {
			a.endpoints[d.New.Endpoint] = true
		}
	}
	if a.all || a.addresses {
		a.classes = nil
	}
	sets := reachability.ChangedSets(a.of, t.state)
	for k := range a.endpoints {
		if p, has := t.cluster.Port(k); has {
			t.movedFrom, t.movedTo = append(t.movedFrom, p), append(t.movedTo, p)
		}
	}
	if len(sets[model.In])+len(sets[model.Out]) == 0 {
		return a.all || a.services || a.addresses || len(a.endpoints)+len(a.groups) > 0
	}
	from, to := sets[model.Out], sets[model.In]
	for _, p := range t.state.Ports.All() {
		if p.Policies == 0 {
			continue
		}
		moves, opens := from[p.Policies], to[p.Policies]
		if (moves || opens) && a.endpoints[p.Endpoint] {
			continue
		}
		if moves {
			t.movedFrom = append(t.movedFrom, p)
		}
		if opens {
			t.movedTo = append(t.movedTo, p)
		}
	}
	return true
}

// retest tests an assertion that held about what has changed since.
func (t *tester) retest(x *assertion) {
	a := t.asserted
	sources, targets := t.touched(x, x.asks.From, t.movedFrom), t.touched(x, x.asks.To, t.movedTo)
	some, whole := len(sources)+len(targets) > 0, a.all
	for _, s := range []Subject{x.asks.From, x.asks.To} {
		switch s.kind {
		case "":
			whole = whole || some
		case "service":
			whole = whole || a.services || len(t.movedFrom)+len(t.movedTo) > 0
		case "addresses":
			whole = whole || !s.isInternet() && (some || a.addresses || a.services)
		case "group":
			whole = whole || a.groups[s.group()]
		}
	}
	switch {
	case whole:
		a.verdicts[x.Key] = t.test(x)
	case some, a.addresses && (x.asks.From.isOutside() || x.asks.To.isOutside()):
		a.verdicts[x.Key] = t.testTouched(x, sources, targets)
	}
}

// touched are those of some endpoints that a side of an assertion selects.
func (t *tester) touched(x *assertion, s Subject, all []*desired.Port) (out []*desired.Port) {
	for _, p := range all {
		if e := t.endpoints[p.Endpoint]; e != nil && x.scope().Has(e.Key.Network.Tenant) && s.selects(e) {
			out = append(out, p)
		}
	}
	return out
}
