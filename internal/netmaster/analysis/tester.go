package analysis

import (
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxAssertedSteps bounds how many decisions of policies one assertion may ask for: a second's.
const maxAssertedSteps = 1 << 18

// tester tests assertions on one state of the rows.
type tester struct {
	*clusterRows
	movedFrom  []*desired.Port // that may connect to others than before
	movedTo    []*desired.Port // that others may connect to otherwise than before
	classified bool
	sides      map[sideKey]*askedSide
	steps      int // that the assertion has asked for
}

// class is endpoints that are alike: up to two, since an endpoint does not connect to itself.
type class []*desired.Port

func (t *tester) classes(all []*desired.Port) (out []class) {
	if len(all) == 0 {
		return nil
	}
	if !t.classified {
		t.asserted.classes, t.classified = t.cluster.Classify(t.asserted.classes), true
	}
	at := map[int]int{}
	for _, p := range all {
		c := t.asserted.classes.Of(p)
		i, has := at[c]
		if !has {
			i = len(out)
			at[c], out = i, append(out, nil)
		}
		if len(out[i]) < 2 {
			out[i] = append(out[i], p)
		}
	}
	return out
}

// firsts are one endpoint of each class.
func firsts(all []class) []*desired.Port {
	out := make([]*desired.Port, len(all))
	for i, c := range all {
		out[i] = c[0]
	}
	return out
}

// sideKey is a side of an assertion: many have the same.
type sideKey struct {
	memberKey
	field string
}

// askedSide is what a side stands for.
type askedSide struct {
	side
	classes []class
	err     error
}

// asked is an assertion with what its sides stand for.
type asked struct {
	*assertion
	from, to *askedSide
	table    *table // of connections that are not between two endpoints
}

// side finds what a side of an assertion stands for.
func (t *tester) side(x *assertion, s Subject) *askedSide {
	key := sideKey{memberKey{x.scope(), s.in, s.text}, s.field}
	if known := t.sides[key]; known != nil {
		return known
	}
	a := &askedSide{}
	switch {
	case s.kind == "host" && s.field == "to":
		a.side = t.setUse(side{outside: t.addressesOfHost(model.HostName(s.name)), name: s.text}, nil)
	case s.kind == "any":
		a.outside = s.addrs
		for _, p := range t.state.Ports.All() {
			if x.scope().Has(p.Endpoint.Network.Tenant) {
				a.endpoints = append(a.endpoints, p)
			}
		}
	default:
		if a.side, a.err = t.resolve(s, x.scope()); s.field == "from" {
			a.side = t.sources(a.side)
		}
		a.side = t.setUse(t.setTaken(a.side), nil)
	}
	a.classes = t.classes(a.endpoints)
	t.sides[key] = a
	return a
}

// test tests all of an assertion. About no endpoints it holds.
func (t *tester) test(x *assertion) Verdict {
	q, v := t.ask(x)
	if q == nil {
		return v
	}
	why, err := t.pairs(q, q.from.classes, q.to.classes)
	if why == "" && err == nil {
		why, err = t.beside(q, q.from.classes, q.to.classes)
	}
	return q.verdict(why, err)
}

// testTouched tests an assertion that held as far as some sources and targets are concerned.
func (t *tester) testTouched(x *assertion, sources, targets []*desired.Port) Verdict {
	q, v := t.ask(x)
	if q == nil {
		return v
	}
	some, others := t.classes(sources), t.classes(targets)
	why, err := t.pairs(q, some, q.to.classes)
	if why == "" && err == nil {
		why, err = t.pairs(q, q.from.classes, others)
	}
	if why == "" && err == nil {
		if t.asserted.addresses {
			some, others = q.from.classes, q.to.classes
		}
		why, err = t.beside(q, some, others)
	}
	return q.verdict(why, err)
}

func (x *assertion) verdict(why string, err error) Verdict {
	switch {
	case err != nil:
		return Verdict{x.Assertion, Unchecked, "it cannot be checked: " + err.Error()}
	case why != "":
		return Verdict{x.Assertion, Broken, why}
	}
	return Verdict{x.Assertion, Holds, ""}
}

// ask finds what the sides of an assertion stand for; nil = the verdict is known without.
func (t *tester) ask(x *assertion) (*asked, Verdict) {
	if x.bad != nil {
		return nil, x.verdict("", x.bad)
	}
	q := &asked{assertion: x, from: t.side(x, x.asks.From), to: t.side(x, x.asks.To)}
	for _, s := range []struct {
		of  Subject
		err error
	}{{x.asks.From, q.from.err}, {x.asks.To, q.to.err}} {
		named := s.of.kind == "group" || s.of.kind == "network" || s.of.kind == "service"
		switch {
		case s.err == nil:
		case !errors.Is(s.err, model.ErrNotFound):
			return nil, x.verdict("", s.err)
		case named:
			return nil, x.verdict(s.err.Error(), nil)
		} // endpoints and namespaces come and go
	}
	if q.from.isEmpty() || q.to.isEmpty() || len(q.from.endpoints)+len(q.to.endpoints)+len(q.to.services) == 0 {
		return nil, x.verdict("", nil)
	}
	q.table = newTable(t.clusterRows, x.asks.Ports, x.scope())
	q.table.asserts = true
	t.steps = 0
	return q, Verdict{}
}

// pairs returns why connections between classes break an assertion; "" = they do not.
func (t *tester) pairs(q *asked, sources, targets []class) (string, error) {
	for _, s := range sources {
		admitted := map[desired.PolicySetID]bool{} // by the policies of targets
		for _, d := range targets {
			if q.Verdict == model.Never {
				admits, known := admitted[d[0].Policies]
				if !known {
					t.steps++
					admits = t.asserted.classes.Permits(d[0], s[0], q.asks.Ports)
					admitted[d[0].Policies] = admits
				}
				if !admits {
					continue
				}
			}
			if t.steps++; t.steps > maxAssertedSteps {
				return "", model.Errorf(model.ErrInvalid, "it is about too many endpoints that differ; assert less at once")
			}
			if why := t.pair(q, s, d); why != "" {
				return why, nil
			}
		}
	}
	return "", nil
}

func (t *tester) pair(q *asked, from, to class) string {
	src, dst := from[0], to[0]
	switch {
	case src != dst:
	case len(from) > 1:
		src = from[1]
	case len(to) > 1:
		dst = to[1]
	default:
		return "" // an endpoint and itself
	}
	if !q.table.means(q.to.side, dst, src) || !q.table.means(q.from.side, src, dst) {
		return ""
	}
	one := newTable(t.clusterRows, q.asks.Ports, q.scope())
	one.between(src, dst, q.from.has(false) && q.to.has(false), q.from.has(true) && q.to.has(true))
	return q.broken(one)
}

// beside returns why connections with addresses outside, or with services, break an assertion;
// "" = they do not.
func (t *tester) beside(q *asked, sources, targets []class) (string, error) {
	from, to := q.from.side, q.to.side
	from.endpoints, to.endpoints = firsts(sources), firsts(targets)
	if !from.addressed && !to.addressed && len(to.services) == 0 {
		from.endpoints, to.endpoints = alikeOutside(from.endpoints), alikeOutside(to.endpoints)
	}
	if len(from.endpoints)+len(to.endpoints)+len(to.services) == 0 || from.isEmpty() || to.isEmpty() {
		return "", nil
	}
	if err := q.table.fill(from, to); err != nil {
		return "", err
	}
	why := q.broken(q.table)
	if why == "" && q.Verdict == model.Always && len(to.services) > 0 && len(q.table.order) == 0 {
		why = fmt.Sprintf("service %s has no such port", to.services[0].key)
	}
	return why, nil
}

// alikeOutside are one of those endpoints of which the cluster says the same to addresses outside.
func alikeOutside(all []*desired.Port) (out []*desired.Port) {
	type key struct {
		directKey
		onHost bool
	}
	seen := map[key]bool{}
	for _, p := range all {
		k := key{directKey{p.Network, p.Policies, p.IPv4.IsValid(), p.IPv6.IsValid(), p.Identity != model.IdentityUnknown}, p.OnHost}
		if !seen[k] {
			seen[k] = true
			out = append(out, p)
		}
	}
	return out
}

// broken returns why a row of a table breaks the assertion; "" = none does.
func (x *assertion) broken(t *table) string {
	for _, row := range t.list() {
		if why := x.breaks(row); why != "" {
			return why
		}
	}
	return ""
}
