package analysis

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Explanation is what applies to an endpoint.
type Explanation struct {
	Endpoint model.Endpoint
	In, Out  []Tier         // in the order in which they decide; after the last one everything passes
	Audited  []string       // policies under audit that apply, which decide nothing
	Services []ServiceState // that have it as a backend, by key
	Problems []compile.Problem
	// Missing: its policies are not compiled, and it is cut off.
	Missing bool
}

// Tier is a stage of decision.
type Tier struct {
	Tier      model.Tier
	Policies  []string // whose rules it has, by the first of them in deciding order
	Rules     int
	Default   model.Action // Pass = the next tier decides
	DefaultOf []string     // the policies whose default it is
}

// ServiceState is a service with how it treats a backend.
type ServiceState struct {
	Service model.ServiceKey
	State   desired.BackendState // by the family that serves it better
}

// Explain answers what applies to an endpoint, by what the one who asks may know of.
func (e *Engine) Explain(ctx context.Context, s Subject, scope Scope) (out Explanation, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		found, err := r.resolve(s, scope)
		if err != nil {
			return err
		}
		if len(found.endpoints) != 1 || len(found.outside) > 0 {
			return model.Errorf(model.ErrInvalid, "%s: %q is no single endpoint; name one", s.field, s.text)
		}
		out = r.explain(found.endpoints[0])
		return nil
	})
	return out, err
}

func (r *clusterRows) explain(p *desired.Port) Explanation {
	out := Explanation{Endpoint: *r.endpoints[p.Endpoint]}
	about := map[string]bool{"endpoint " + p.Endpoint.String(): true, "network " + p.Endpoint.Network.String(): true}
	if out.Endpoint.Group != "" {
		about["group "+model.GroupKey{Tenant: p.Endpoint.Network.Tenant, Name: out.Endpoint.Group}.String()] = true
	}
	set, is := r.state.PolicySets.Get(p.Policies)
	switch {
	case is:
		out.In, out.Out = tiers(set.In), tiers(set.Out)
		for _, id := range set.Audits {
			if a, is := r.state.PolicySets.Get(id); is {
				out.Audited = append(out.Audited, a.Audited)
			}
		}
		for _, t := range slices.Concat(out.In, out.Out) {
			for _, name := range slices.Concat(t.Policies, t.DefaultOf) {
				about["policy "+name] = true
			}
		}
	case p.Policies != 0:
		out.Missing = true
	}
	for key, s := range r.state.Services.All() {
		if b, is := s.Backends.Get(p.Endpoint); is {
			state := b.Serving(false).State
			if b.IPv6.IsValid() && (!b.IPv4.IsValid() || b.Serving(true).State < state) {
				state = b.Serving(true).State
			}
			out.Services = append(out.Services, ServiceState{key, state})
			about["service "+key.String()] = true
		}
	}
	slices.SortFunc(out.Services, func(a, b ServiceState) int { return cmp.Compare(a.Service.String(), b.Service.String()) })
	for _, problem := range r.problems {
		kind, name, _ := strings.Cut(problem.Object, " ")
		if kind == "rule" {
			name = name[:max(0, strings.LastIndexByte(name, ':'))]
			kind = "policy"
		}
		if about[kind+" "+name] {
			out.Problems = append(out.Problems, problem)
		}
	}
	return out
}

func tiers(all []desired.Tier) (out []Tier) {
	for _, t := range all {
		to := Tier{Tier: t.Tier, Rules: t.Rules.Len(), Default: t.Default}
		if t.DefaultOf != "" {
			to.DefaultOf = strings.Split(t.DefaultOf, ",")
		}
		seen := map[string]bool{}
		for _, rule := range t.Ordered() {
			name := rule.ID // compiled in the place of a policy's rule
			if k, err := model.ParseRuleKey(rule.ID); err == nil {
				name = model.PolicyKey{Tenant: k.Tenant, Name: k.Policy}.String()
			}
			if !seen[name] {
				seen[name] = true
				to.Policies = append(to.Policies, name)
			}
		}
		out = append(out, to)
	}
	return out
}
