package reachability

import (
	"cmp"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Ruling is what the policy at one end of a connection says.
type Ruling struct {
	Pass bool
	// Rule is the one that decided; nil = none did, but the default of Tier or, with Tier 0, that
	// no policy applies or all of them pass on.
	Rule      *desired.Rule
	Tier      model.Tier
	DefaultOf string // as desired.Tier's
	// Missing: the policy of the endpoint is not compiled, which denies.
	Missing bool
}

// ruled is a part of all ports with what one end says of it.
type ruled struct {
	ports Ports
	Ruling
}

// orderedTier is a tier with its rules in deciding order.
type orderedTier struct {
	desired.Tier
	rules []*orderedRule
}

type orderedRule struct {
	*desired.Rule
	ports Ports
}

// orderedSet is a policy set that has been prepared.
type orderedSet [2][]orderedTier // by direction

func orderSet(s *desired.PolicySet) *orderedSet {
	var out orderedSet
	for i, dir := range []model.Direction{model.In, model.Out} {
		for _, t := range s.Tiers(dir) {
			ordered := orderedTier{Tier: t}
			for _, r := range t.Ordered() {
				ordered.rules = append(ordered.rules, &orderedRule{r, PortsOf(r.Ports...)})
			}
			out[i] = append(out[i], ordered)
		}
	}
	return &out
}

func (s *orderedSet) tiers(dir model.Direction) []orderedTier {
	if dir == model.Out {
		return s[1]
	}
	return s[0]
}

// judge splits all ports by what a direction's tiers say of a peer's connections to them, as
// desired.PolicySet.Judge says of each.
func (s *orderedSet) judge(dir model.Direction, p desired.Peer) (out []ruled) {
	left := AllPorts()
	for _, t := range s.tiers(dir) {
		var passed Ports
		decide := func(ports Ports, action model.Action, by Ruling) {
			switch action {
			case model.Pass:
				passed = passed.Or(ports)
			default:
				by.Pass = action == model.Allow
				out = append(out, ruled{ports, by})
			}
		}
		for _, r := range t.rules {
			if left.IsEmpty() {
				break
			}
			if !r.MatchesPeer(p) {
				continue
			}
			if decided := left.And(r.ports); !decided.IsEmpty() {
				decide(decided, r.Action, Ruling{Rule: r.Rule, Tier: t.Tier.Tier})
				left = left.Without(decided)
			}
		}
		if !left.IsEmpty() {
			decide(left, t.Default, Ruling{Tier: t.Tier.Tier, DefaultOf: t.DefaultOf})
		}
		left = passed
	}
	if !left.IsEmpty() {
		out = append(out, ruled{left, Ruling{Pass: true}})
	}
	return out
}

// joined splits all ports by what both ends say.
func joined(from, to []ruled) (out []Part) {
	for _, a := range from {
		for _, b := range to {
			if ports := a.ports.And(b.ports); !ports.IsEmpty() {
				out = append(out, Part{Ports: ports, Allowed: a.Pass && b.Pass, Out: &a.Ruling, In: &b.Ruling})
			}
		}
	}
	return inOrder(out)
}

// alone are the parts of what one end says, where the other is no endpoint.
func alone(all []ruled, dir model.Direction) (out []Part) {
	for _, r := range all {
		p := Part{Ports: r.ports, Allowed: r.Pass}
		if dir == model.Out {
			p.Out = &r.Ruling
		} else {
			p.In = &r.Ruling
		}
		out = append(out, p)
	}
	return inOrder(out)
}

func inOrder(parts []Part) []Part {
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Compare(a.Ports.spans[0].lo, b.Ports.spans[0].lo) })
	return parts
}
