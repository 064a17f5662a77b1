package analysis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxAssertedPairs is how many pairs of endpoints that are not alike one assertion may be about.
const maxAssertedPairs = 1 << 16

// assertion is a stored one, as it is asked.
type assertion struct {
	model.Assertion
	asks Question
	bad  error // it cannot be read: another version wrote it
}

// CheckAssertion checks the texts of an assertion. The error is of kind model.ErrInvalid.
func CheckAssertion(a model.Assertion) error {
	x := newAssertion(a)
	if x.bad == nil && x.asks.From.isInternet() && x.asks.To.isInternet() {
		return model.Errorf(model.ErrInvalid, "from and to: one side has to be endpoints, or to a service")
	}
	return x.bad
}

func newAssertion(a model.Assertion) *assertion {
	x := &assertion{Assertion: a}
	x.asks, x.bad = assertedQuestion(a)
	return x
}

func assertedQuestion(a model.Assertion) (q Question, err error) {
	if q.From, err = ParseSubject("from", a.From, a.Key.Tenant); err != nil {
		return q, err
	}
	if q.To, err = ParseSubject("to", a.To, a.Key.Tenant); err != nil {
		return q, err
	}
	for _, s := range []Subject{q.From, q.To} {
		if s.in != a.Key.Tenant || s.kind == "tenant" && s.name != string(a.Key.Tenant) {
			return q, model.InvalidField(s.field, s.text, fmt.Sprintf("must be of tenant %s, as the assertion", a.Key.Tenant))
		}
	}
	if len(a.Ports) == 0 {
		q.Ports = reachability.AllPorts()
	}
	for _, text := range a.Ports {
		ports, err := ParsePort("ports", text)
		if err == nil && text == "" {
			err = model.InvalidField("ports", text, "must not be empty: omit it for all")
		}
		if err != nil {
			return q, err
		}
		q.Ports = q.Ports.Or(ports)
	}
	return q, nil
}

// Contradict reports whether two assertions say the opposite of the same connections.
func Contradict(a, b model.Assertion) bool {
	x, y := newAssertion(a), newAssertion(b)
	return a.Verdict != b.Verdict && a.From == b.From && a.To == b.To && !x.asks.Ports.And(y.asks.Ports).IsEmpty()
}

// Broken is an assertion that does not hold.
type Broken struct {
	Assertion model.Assertion
	Why       string // a sentence's part, with who decides
	Unchecked bool   // it is not known whether it holds
}

func (b Broken) String() string {
	s := fmt.Sprintf("assertion %q (%s", b.Assertion.Key, b.Assertion)
	for _, about := range [][2]string{{"owner", b.Assertion.Owner}, {"reason", b.Assertion.Reason}} {
		if about[1] != "" {
			s += "; " + about[0] + " " + about[1]
		}
	}
	return s + "): " + b.Why
}

// ofTenant is the scope of a tenant's assertions.
type ofTenant model.TenantName

// Has reports whether a tenant is this one.
func (t ofTenant) Has(tenant model.TenantName) bool { return model.TenantName(t) == tenant }

// Check returns the assertions that hold, or are not there, and would be broken with rows as they
// would be. Nothing of the rows is left in the Engine.
func (e *Engine) Check(ctx context.Context, rows []PlannedRow) (out []Broken, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		now, then, err := e.events(rows)
		if err != nil {
			return err
		}
		had := make(map[model.AssertionKey]model.Assertion, len(r.assertions))
		for k, a := range r.assertions {
			had[k] = a.Assertion
		}
		r.apply(then, r.rev)
		r.compile()
		broken := r.broken()
		r.apply(now, r.rev)
		r.compile()
		if len(broken) == 0 {
			return nil
		}
		t := r.newTester()
		for _, b := range broken {
			k := b.Assertion.Key
			a := r.assertions[k]
			if b.Unchecked && a != nil || a != nil && had[k].String() == b.Assertion.String() && t.test(a) != nil {
				continue
			}
			out = append(out, b)
		}
		return nil
	})
	return out, err
}

// Broken returns the assertions that do not hold, by key.
func (e *Engine) Broken(ctx context.Context) (out []Broken, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		out = r.broken()
		return nil
	})
	return out, err
}

func (r *clusterRows) broken() (out []Broken) {
	t := r.newTester()
	for _, a := range r.assertions {
		if b := t.test(a); b != nil {
			out = append(out, *b)
		}
	}
	slices.SortFunc(out, func(a, b Broken) int { return strings.Compare(a.Assertion.Key.String(), b.Assertion.Key.String()) })
	return out
}

// tester tests assertions on one state of the rows.
type tester struct {
	*clusterRows
	classOf func(*desired.Port) any
	known   map[*desired.Port]any
}

func (r *clusterRows) newTester() *tester {
	return &tester{r, r.cluster.Classify(), map[*desired.Port]any{}}
}

// class is endpoints that are alike: up to two, since an endpoint does not connect to itself.
type class []*desired.Port

func (t *tester) classes(all []*desired.Port) (out []class) {
	at := map[any]int{}
	for _, p := range all {
		c, known := t.known[p]
		if !known {
			c = t.classOf(p)
			t.known[p] = c
		}
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

// test returns why an assertion does not hold; nil = it holds. About no endpoints it holds.
func (t *tester) test(a *assertion) *Broken {
	fail := func(format string, args ...any) *Broken {
		return &Broken{Assertion: a.Assertion, Why: fmt.Sprintf(format, args...)}
	}
	if a.bad != nil {
		return &Broken{a.Assertion, "it cannot be checked: " + a.bad.Error(), true}
	}
	from, to, gone, err := t.assertedSides(a)
	switch {
	case gone:
		return fail("%v", err)
	case err != nil:
		return &Broken{a.Assertion, "it cannot be checked: " + err.Error(), true}
	case len(from.endpoints)+len(to.endpoints)+len(to.services) == 0, from.isEmpty(), to.isEmpty():
		return nil
	}
	sources, targets := t.classes(from.endpoints), t.classes(to.endpoints)
	if n := len(sources) * len(targets); n > maxAssertedPairs {
		return &Broken{a.Assertion, fmt.Sprintf("it cannot be checked: it is about %d pairs of endpoints that differ, and at most %d are checked; assert less at once", n, maxAssertedPairs), true}
	}
	for _, s := range sources {
		for _, d := range targets {
			if why := t.pair(a, s, d); why != "" {
				return fail("%s", why)
			}
		}
	}
	// The rest: addresses outside, and services.
	rest := newTable(t.clusterRows, a.asks.Ports, ofTenant(a.Key.Tenant))
	rest.asserts = true
	from.endpoints, to.endpoints = firsts(sources), firsts(targets)
	if err := rest.fill(from, to); err != nil {
		return &Broken{a.Assertion, "it cannot be checked: " + err.Error(), true}
	}
	for _, row := range rest.list() {
		if why := breaks(a, row); why != "" {
			return fail("%s", why)
		}
	}
	if a.Verdict == model.Always && len(to.services) > 0 && len(rest.order) == 0 {
		return fail("service %s has no such port", to.services[0].key)
	}
	return nil
}

// assertedSides are the sides of an assertion. gone: an object that it names does not exist.
func (t *tester) assertedSides(a *assertion) (from, to side, gone bool, err error) {
	for _, s := range []struct {
		of   Subject
		side *side
	}{{a.asks.From, &from}, {a.asks.To, &to}} {
		*s.side, err = t.resolve(s.of, ofTenant(a.Key.Tenant))
		if errors.Is(err, model.ErrNotFound) {
			if named := s.of.kind == "group" || s.of.kind == "network" || s.of.kind == "service"; named {
				return from, to, true, fmt.Errorf("%s %q does not exist", s.of.kind, s.of.name)
			}
			err = nil // endpoints and namespaces come and go
		}
		if err != nil {
			return from, to, false, err
		}
	}
	if a.asks.To.kind == "host" {
		to = side{outside: t.addressesOfHost(model.HostName(a.asks.To.name)), name: a.asks.To.text}
	}
	return t.sources(from), to, false, nil
}

// pair returns why two classes break an assertion; "" = they do not.
func (t *tester) pair(a *assertion, from, to class) string {
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
	four, six := t.cluster.Between(src, dst, false), t.cluster.Between(src, dst, true)
	row := Row{From: []string{src.Endpoint.String()}, To: []string{dst.Endpoint.String()}}
	for _, x := range []struct {
		v6            bool
		answer, other reachability.Answer
	}{{false, four, six}, {true, six, four}} {
		if x.answer.Gap == reachability.GapFamily && x.other.Gap != reachability.GapFamily {
			continue
		}
		row.IPv4, row.IPv6, row.Answer = !x.v6, x.v6, x.answer.Of(a.asks.Ports)
		if why := breaks(a, row); why != "" {
			return why
		}
	}
	return ""
}

// breaks returns why a row breaks an assertion; "" = it does not.
func breaks(a *assertion, row Row) string {
	family := "IPv4"
	if row.IPv6 {
		family = "IPv6"
	}
	ends := row.From[0] + " -> " + row.To[0]
	if row.Service != nil {
		ends += fmt.Sprintf(" by service %s at %s", row.Service.Key, row.Service.At)
	}
	if a.Verdict == model.Always {
		switch {
		case row.Service != nil && row.Service.NoBackend:
			return fmt.Sprintf("service %s has no backend at %s", row.Service.Key, row.Service.At)
		case row.Route == reachability.RouteNone || row.Gap != "":
			return fmt.Sprintf("%s (%s) has no route: %s", ends, family, row.Gap)
		}
	}
	for _, p := range row.Parts {
		if p.Allowed == (a.Verdict == model.Never) {
			verb := "denied"
			if p.Allowed {
				verb = "allowed"
			}
			return fmt.Sprintf("%s %s (%s) is %s%s%s", ends, FormatPort(p.Ports.Matches()[0]), family, verb, decider(a, "source", p.Out), decider(a, "destination", p.In))
		}
	}
	return ""
}

// decider says who decides at an end. Policies of other tenants are not named.
func decider(a *assertion, end string, r *reachability.Ruling) string {
	switch {
	case r == nil:
		return ""
	case r.Missing:
		return fmt.Sprintf("; at the %s its policies are not known", end)
	case r.Rule != nil:
		k, err := model.ParseRuleKey(r.Rule.ID)
		if err == nil && k.Tenant != a.Key.Tenant {
			return fmt.Sprintf("; at the %s by a policy of another tenant", end)
		}
		return fmt.Sprintf("; at the %s by rule %s (tier %s)", end, r.Rule.ID, r.Tier)
	case r.Tier != 0:
		var of []string
		for name := range strings.SplitSeq(r.DefaultOf, ",") {
			if t, _, _ := strings.Cut(name, ":"); t == string(a.Key.Tenant) {
				of = append(of, name)
			}
		}
		return fmt.Sprintf("; at the %s by the default of tier %s (%s)", end, r.Tier, strings.Join(of, ", "))
	}
	return fmt.Sprintf("; at the %s no policy decides", end)
}
