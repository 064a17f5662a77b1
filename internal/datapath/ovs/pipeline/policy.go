package pipeline

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Priorities within a tier's table: a rule's own priority and action decide,
// never its position, so that a new rule leaves the flows of others alone.
const (
	priorityMiss    = 0
	priorityNoSet   = 1
	priorityDefault = 2
	priorityRules   = 16
	// MaxRulePriority is the highest rule priority that fits a flow's 16 bits.
	MaxRulePriority = (0xffff-priorityRules)/model.Actions - 1
	// priorityAuditEntry is above all rules, and below seeded faults.
	priorityAuditEntry = 0xfffe
)

func rulePriority(c Config, r *desired.Rule) uint16 {
	rank := model.Actions - 1 - r.Action.Rank()
	if c.Mutation == AllowWinsTies {
		rank = r.Action.Rank()
	}
	return uint16(priorityRules + model.Actions*r.Priority + rank)
}

// direction is what differs between the two halves of the policy stages.
type direction struct {
	first            Stage // table of its first tier
	after            Stage
	audit            Stage    // table of its first tier for audited sets
	set              of.Field // register with the policy set
	peer             of.Field // register with the peer's identity
	ct4, ct6, ip, v6 of.Field // the peer's address: tracked, and of untracked packets
}

var (
	outward = direction{EgressPolicy0, IngressPolicy0, AuditEgress0, regEgressSet, regDst, of.CtNwDst, of.CtIPv6Dst, of.NwDst, of.IPv6Dst}
	inward  = direction{IngressPolicy0, ConntrackCommit, AuditIngress0, regIngressSet, regSrc, of.CtNwSrc, of.CtIPv6Src, of.NwSrc, of.IPv6Src}
)

// policyBase adds what every tier's table has: a port without policy passes, a
// port whose policy is not in is closed.
func (l baseFlows) policyBase() {
	for _, d := range []direction{outward, inward} {
		for i := range Stage(TiersPerDirection) {
			l.drop(d.first+i, priorityMiss, nil, driver.DropPolicy)
			if l.c.Mutation == NoIngress && d.first == IngressPolicy0 {
				l.add(d.first+i, 0xffff, nil, goTo(d.after))
			}
			if i == 0 {
				l.add(d.first, priorityNoSet, match(of.Eq(d.set, 0)), goTo(d.after))
			}
		}
	}
}

// RuleNumber is the number of a rule in its flows' cookies.
func RuleNumber(id string) uint32 { return NumberOf(id) }

// RulePosition is where a rule stands: in a policy set, in a direction, in a tier.
type RulePosition struct {
	Set   desired.PolicySetID
	Audit bool // the set is evaluated, and decides nothing
	Out   bool // of the rules of a connection's source
	Tier  int  // from 0
	Last  bool // no tier comes after it: what it passes on is let through
}

func directionOf(out bool) direction {
	if out {
		return outward
	}
	return inward
}

// verdict is what follows from an action at a place; number is the rule's, 0 of a
// default.
func (p RulePosition) verdict(a model.Action, number uint32) (Kind, []of.Action) {
	d := directionOf(p.Out)
	switch {
	case a == model.Allow && p.Audit:
		return KindAllow, judge(KindAllow, number)
	case a == model.Allow:
		return KindAllow, []of.Action{goTo(d.after)}
	case a == model.Pass && p.Last && p.Audit:
		return KindPass, judge(KindPass, 0)
	case a == model.Pass && p.Last:
		return KindPass, []of.Action{goTo(d.after)}
	case a == model.Pass:
		return KindPass, []of.Action{goTo(p.table() + 1)}
	case p.Audit:
		return KindDeny, judge(KindDeny, number)
	}
	return KindDeny, nil // for an unknown action too
}

func (p RulePosition) table() Stage {
	d := directionOf(p.Out)
	if p.Audit {
		return d.audit + Stage(p.Tier)
	}
	return d.first + Stage(p.Tier)
}

// set matches the packets that the set at this place is asked about.
func (p RulePosition) set() of.Term {
	if p.Audit {
		return of.Eq(regAudit, p.Set)
	}
	return of.Eq(directionOf(p.Out).set, p.Set)
}

// SetBaseFlows returns the flows that a policy set has beside those of its rules: what
// its tiers do with packets that no rule matches. The error says why flows cannot
// express the set.
func SetBaseFlows(s *desired.PolicySet, audit bool) ([]of.Flow, error) {
	l := &list{}
	for _, out := range []bool{false, true} {
		tiers := s.In
		if out {
			tiers = s.Out
		}
		if len(tiers) > TiersPerDirection {
			return nil, model.Errorf(model.ErrExhausted, "%d tiers, at most %d are possible", len(tiers), TiersPerDirection)
		}
		l.cookie = cookie(KindDefault, uint32(s.ID))
		if audit {
			l.cookie = cookie(KindAudit, 0)
		}
		if len(tiers) == 0 { // as one that passes everything
			tiers = []desired.Tier{{Default: model.Pass}}
		}
		for i, t := range tiers {
			p := RulePosition{Set: s.ID, Audit: audit, Out: out, Tier: i, Last: i == len(tiers)-1}
			switch kind, acts := p.verdict(t.Default, 0); {
			case kind.Denies() && audit:
				l.add(p.table(), priorityDefault, match(p.set()), of.Set(regRule, i), goTo(WouldDefault))
			case kind.Denies():
				l.drop(p.table(), priorityDefault, match(p.set()), driver.DropPolicy)
			default:
				l.add(p.table(), priorityDefault, match(p.set()), acts...)
			}
		}
	}
	return l.flows, nil
}

// ClosedSet returns the flows of a policy set that denies everything.
func ClosedSet(id desired.PolicySetID) []of.Flow {
	l := &list{}
	for _, d := range []direction{outward, inward} {
		l.drop(d.first, priorityDefault, match(of.Eq(d.set, id)), driver.DropPolicy)
	}
	return l.flows
}

// CheckRule tells what flows cannot express of a rule.
func CheckRule(r *desired.Rule) error {
	if r.Priority < 0 || r.Priority > MaxRulePriority {
		return model.Errorf(model.ErrInvalid, "rule %s has priority %d, possible are 0 to %d", r.ID, r.Priority, MaxRulePriority)
	}
	return nil
}

// Rule returns the flows of a rule. They depend on the rule and its place alone;
// a flow of the same key may belong to other rules of the same weight too, with
// the same verdict: then the switch gets the flow of the rule with the smallest ID.
func Rule(c Config, p RulePosition, r *desired.Rule) []of.Flow {
	return ruleFlows(c, p, r, r.Identities.All())
}

// RulePeers returns the flows of a rule that name the identities ids.
func RulePeers(c Config, p RulePosition, r *desired.Rule, ids []model.Identity) []of.Flow {
	some := *r
	some.CIDRs = nil
	return ruleFlows(c, p, &some, slices.Values(ids))
}

// FlowsOf returns how many flows a rule has at most, without making them.
func FlowsOf(r *desired.Rule) int {
	var prefixes [2]int
	if !r.AnyPeer {
		for _, x := range r.CIDRs {
			for _, p := range without(x.Prefix.Masked(), x.Except) {
				if p.Addr().Is6() {
					prefixes[1]++
				} else {
					prefixes[0]++
				}
			}
		}
	}
	n := 0
	for _, p := range portTerms(r.Ports) {
		if r.AnyPeer {
			n++
			continue
		}
		n += r.Identities.Len()
		for i, eth := range []uint16{ethIP, ethIPv6} {
			switch {
			case p.eth != 0 && p.eth != eth:
			case p.tracked:
				n += prefixes[i]
			default:
				n += 2 * prefixes[i]
			}
		}
	}
	return n
}

func ruleFlows(c Config, p RulePosition, r *desired.Rule, ids iter.Seq[model.Identity]) []of.Flow {
	n := RuleNumber(r.ID)
	kind, acts := p.verdict(r.Action, n)
	number, priority := cookie(kind, n), rulePriority(c, r)
	switch {
	case p.Audit:
		number = cookie(KindAudit, n) // it counts nothing
	case r.Log:
		number |= LogBit
	}
	var out []of.Flow
	for _, m := range ruleMatches(directionOf(p.Out), p.set(), r, ids) {
		out = append(out, of.Flow{Table: uint8(p.table()), Priority: priority, Cookie: number, Match: m, Actions: acts})
	}
	return out
}

// ruleMatches is the product of a rule's peers and ports.
func ruleMatches(d direction, set of.Term, r *desired.Rule, ids iter.Seq[model.Identity]) []of.Match {
	var out []of.Match
	for _, p := range portTerms(r.Ports) {
		for _, q := range peerTerms(d, r, ids, p.tracked) {
			if p.eth != 0 && q.eth != 0 && p.eth != q.eth {
				continue
			}
			terms := append([]of.Term{set}, q.terms...)
			if eth := max(p.eth, q.eth); eth != 0 {
				terms = append(terms, of.Eq(of.EthType, eth))
			}
			out = append(out, match(append(terms, p.terms...)...))
		}
	}
	return out
}

// alternative is one way to satisfy half of a rule. eth is the Ethernet type
// that its terms need, or 0.
type alternative struct {
	eth     uint16
	tracked bool // the terms are only met by tracked packets, so those of both halves must be
	terms   []of.Term
}

// isTracked holds for packets whose original direction fields are set.
var isTracked = of.State(of.StateTrk, of.StateInv)

// portTerms are the alternatives of a list of protocols and ports. Ports are
// those of the connection's original direction, as tracking recorded them: so
// replies, later fragments and ICMP errors are judged like their connection.
func portTerms(ports []model.PortMatch) []alternative {
	if len(ports) == 0 {
		return []alternative{{}}
	}
	var out []alternative
	for _, m := range ports {
		switch p := m.Protocol; p {
		case model.AnyProtocol:
			return []alternative{{}}
		case model.ProtoICMP:
			out = append(out,
				alternative{ethIP, true, []of.Term{isTracked, of.Eq(of.CtNwProto, 1)}},
				alternative{ethIPv6, true, []of.Term{isTracked, of.Eq(of.CtNwProto, 58)}})
		case model.ProtoTCP, model.ProtoUDP:
			for _, pm := range portMasks(m.Lo, m.Hi) {
				for _, eth := range []uint16{ethIP, ethIPv6} {
					out = append(out, alternative{eth, true, []of.Term{
						isTracked, of.Eq(of.CtNwProto, uint8(p)), of.Masked(of.CtTpDst, of.Uint(pm.value), of.Uint(pm.mask)),
					}})
				}
			}
		case model.ProtoSCTP:
			for _, pm := range portMasks(m.Lo, m.Hi) {
				for _, eth := range []uint16{ethIP, ethIPv6} {
					out = append(out, alternative{eth, false, []of.Term{
						isProto(int(p)), of.Masked(of.SCTPDst, of.Uint(pm.value), of.Uint(pm.mask)),
					}})
				}
			}
		case model.ProtoICMPv6:
			out = append(out, alternative{ethIPv6, true, []of.Term{isTracked, of.Eq(of.CtNwProto, 58)}})
		default:
			for _, eth := range []uint16{ethIP, ethIPv6} {
				out = append(out, alternative{eth, false, []of.Term{isProto(int(p))}})
			}
		}
	}
	return out
}

// peerTerms are the alternatives of a rule's peers. An address is matched as
// tracking recorded it, and, unless the other half asks for a tracked packet,
// in the header of untracked ones.
func peerTerms(d direction, r *desired.Rule, ids iter.Seq[model.Identity], tracked bool) []alternative {
	if r.AnyPeer {
		return []alternative{{}}
	}
	var out []alternative
	for id := range ids {
		out = append(out, alternative{terms: []of.Term{of.Eq(d.peer, id)}})
	}
	for _, c := range r.CIDRs {
		for _, p := range without(c.Prefix.Masked(), c.Except) {
			var where []of.Term
			if c.Network != 0 {
				where = append(where, network(c.Network))
			}
			eth, ct, plain := uint16(ethIP), d.ct4, d.ip
			if p.Addr().Is6() {
				eth, ct, plain = ethIPv6, d.ct6, d.v6
			}
			out = append(out, alternative{eth, true, append([]of.Term{isTracked, of.InPrefix(ct, p)}, where...)})
			if !tracked {
				out = append(out, alternative{eth, false, append([]of.Term{of.State(0, of.StateTrk), of.InPrefix(plain, p)}, where...)})
			}
		}
	}
	return out
}

// without splits a prefix into the prefixes that cover all of it but the exceptions.
func without(p netip.Prefix, except []netip.Prefix) []netip.Prefix {
	inside := false
	for _, e := range except {
		e = e.Masked()
		if e.Bits() <= p.Bits() && e.Contains(p.Addr()) {
			return nil
		}
		inside = inside || p.Contains(e.Addr())
	}
	if !inside {
		return []netip.Prefix{p}
	}
	low, high := halves(p)
	return append(without(low, except), without(high, except)...)
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	b := p.Addr().AsSlice()
	low = netip.PrefixFrom(p.Addr(), p.Bits()+1)
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(b)
	return low, netip.PrefixFrom(a, p.Bits()+1)
}

// portMask selects the ports that agree with value in the bits of mask.
type portMask struct{ value, mask uint16 }

// portMasks covers an inclusive range by the fewest masks.
func portMasks(lo, hi uint16) []portMask {
	var out []portMask
	for at := uint32(lo); at <= uint32(hi); {
		size := uint32(1)
		for at%(size*2) == 0 && at+size*2-1 <= uint32(hi) && size < 1<<16 {
			size *= 2
		}
		out = append(out, portMask{uint16(at), uint16(^(size - 1))})
		at += size
	}
	return out
}
