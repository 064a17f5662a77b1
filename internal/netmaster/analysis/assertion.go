package analysis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

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
		if !a.ClusterWide && (s.in != a.Key.Tenant || s.kind == "tenant" && s.name != string(a.Key.Tenant)) {
			return q, model.InvalidField(s.field, s.text, fmt.Sprintf("must be of tenant %s, as the assertion, which is not clusterWide", a.Key.Tenant))
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

// scope is whose endpoints the assertion is about.
func (x *assertion) scope() assertedScope { return assertedScope{x.Key.Tenant, x.ClusterWide} }

// Contradict reports whether two assertions say the opposite of the same connections, whatever the
// policies are.
func Contradict(a, b model.Assertion) bool {
	x, y := newAssertion(a), newAssertion(b)
	return a.Verdict != b.Verdict && a.From == b.From && a.To == b.To && a.Key.Tenant == b.Key.Tenant && !x.asks.Ports.And(y.asks.Ports).IsEmpty()
}

// AssertionState says whether an assertion holds.
type AssertionState string

// The states.
const (
	Holds     AssertionState = "holds"
	Broken    AssertionState = "broken"
	Unchecked AssertionState = "unchecked" // it is not known whether it holds
)

// Verdict is what is known of an assertion.
type Verdict struct {
	Assertion model.Assertion
	State     AssertionState
	Why       string // a part of a sentence: a flow that breaks it, with the rules that decide; or why it is not checked
}

func (v Verdict) String() string {
	about := []string{v.Assertion.String()}
	if v.Assertion.Owner != "" {
		about = append(about, "owner "+v.Assertion.Owner)
	}
	if v.Assertion.Reason != "" {
		about = append(about, "reason "+v.Assertion.Reason)
	}
	return fmt.Sprintf("assertion %q (%s): %s", v.Assertion.Key, strings.Join(about, "; "), v.Why)
}

// Check returns the assertions that hold, or are not there, and would not hold with rows as they
// would be. Nothing of the rows is left in the Engine.
func (e *Engine) Check(ctx context.Context, rows []PlannedRow) (out []Verdict, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		now, then, err := e.events(rows)
		if err != nil {
			return err
		}
		r.verify()
		had := maps.Clone(r.asserted.verdicts)
		r.apply(then, r.rev)
		r.compile()
		r.verify()
		for _, v := range r.asserted.list() {
			old, known := had[v.Assertion.Key]
			same := known && old.Assertion.String() == v.Assertion.String()
			if v.State == Broken && (!same || old.State == Holds) || v.State == Unchecked && !same {
				out = append(out, v)
			}
		}
		r.apply(now, r.rev)
		r.compile()
		r.asserted.restore(had, r.state)
		return nil
	})
	return out, err
}

// Verdicts returns what is known of all assertions, by key. cached = of the rows as far as the
// source has followed the store.
func (e *Engine) Verdicts(ctx context.Context, cached bool) (out []Verdict, err error) {
	ask := e.ask
	if cached {
		ask = e.askCached
	}
	err = ask(ctx, func(r *clusterRows) error {
		r.verify()
		out = r.asserted.list()
		return nil
	})
	return out, err
}

// SelectNothing returns the sides of an assertion to which no endpoint belongs now, and no address.
func (e *Engine) SelectNothing(a model.Assertion) (out []string) {
	x := newAssertion(a)
	_ = e.askCached(context.Background(), func(r *clusterRows) error { // there is no error
		for _, s := range []Subject{x.asks.From, x.asks.To} {
			side, err := r.resolve(s, x.scope())
			ofHost := s.kind == "host" && s.field == "to" // its own addresses
			if !ofHost && (err == nil && side.isEmpty() || errors.Is(err, model.ErrNotFound)) {
				out = append(out, s.field+" "+s.text)
			}
		}
		return nil
	})
	return out
}

func (a *asserted) list() []Verdict {
	return slices.SortedFunc(maps.Values(a.verdicts), func(a, b Verdict) int { return strings.Compare(a.Assertion.Key.String(), b.Assertion.Key.String()) })
}

// breaks returns why a row breaks an assertion; "" = it does not.
func (x *assertion) breaks(row Row) string {
	family := "IPv4 and IPv6"
	switch {
	case !row.IPv6:
		family = "IPv4"
	case !row.IPv4:
		family = "IPv6"
	}
	ends := row.From[0] + " -> " + row.To[0]
	if row.Service != nil {
		ends += fmt.Sprintf(" by service %s at %s", row.Service.Key, row.Service.At)
	}
	if x.Verdict == model.Always {
		switch {
		case row.Service != nil && row.Service.NoBackend:
			return fmt.Sprintf("service %s has no backend at %s", row.Service.Key, row.Service.At)
		case row.Route == reachability.RouteNone || row.Gap != "":
			return fmt.Sprintf("%s (%s) has no route: %s", ends, family, row.Gap)
		}
	}
	for _, p := range row.Parts {
		if p.Allowed == (x.Verdict == model.Never) {
			verb := "denied"
			if p.Allowed {
				verb = "allowed"
			}
			return fmt.Sprintf("%s %s (%s) is %s%s%s", ends, FormatPort(p.Ports.Matches()[0]), family, verb, x.decider("source", p.Out), x.decider("destination", p.In))
		}
	}
	return ""
}

// decider says who decides at an end. Policies of tenants that the assertion is not about are not
// named.
func (x *assertion) decider(end string, r *reachability.Ruling) string {
	switch {
	case r == nil:
		return ""
	case r.Missing:
		return fmt.Sprintf("; at the %s its policies are not known", end)
	case r.Rule != nil:
		k, err := model.ParseRuleKey(r.Rule.ID)
		if err == nil && !x.scope().Has(k.Tenant) {
			return fmt.Sprintf("; at the %s by a policy of another tenant", end)
		}
		return fmt.Sprintf("; at the %s by rule %s (tier %s)", end, r.Rule.ID, r.Tier)
	case r.Tier != 0:
		var of []string
		for name := range strings.SplitSeq(r.DefaultOf, ",") {
			if t, _, _ := strings.Cut(name, ":"); x.scope().Has(model.TenantName(t)) {
				of = append(of, name)
			}
		}
		return fmt.Sprintf("; at the %s by the default of tier %s (%s)", end, r.Tier, strings.Join(of, ", "))
	}
	return fmt.Sprintf("; at the %s no policy decides", end)
}
