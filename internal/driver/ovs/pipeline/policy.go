package pipeline

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	of "github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
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
	MaxRulePriority = (0xffff-priorityRules)/3 - 1
)

func rulePriority(c Config, r *desired.Rule) uint16 {
	rank := map[model.Action]int{model.Allow: 0, model.Pass: 1, model.Deny: 2}[r.Action]
	if c.Mutation == AllowWinsTies {
		rank = 2 - rank
	}
	return uint16(priorityRules + 3*r.Priority + rank)
}

// direction is what differs between the two halves of the policy stages.
type direction struct {
	first            Stage // table of its first tier
	after            Stage
	set              of.Field // register with the policy set
	peer             of.Field // register with the peer's identity
	ct4, ct6, ip, v6 of.Field // the peer's address: tracked, and of untracked packets
}

var (
	outward = direction{Out0, In0, regOut, regDst, of.CtNwDst, of.CtIPv6Dst, of.NwDst, of.IPv6Dst}
	inward  = direction{In0, Commit, regIn, regSrc, of.CtNwSrc, of.CtIPv6Src, of.NwSrc, of.IPv6Src}
)

// policyFrame adds what every tier's table has: a port without policy passes, a
// port whose policy is not in is closed.
func policyFrame(l *list, c Config) {
	for _, d := range []direction{outward, inward} {
		for i := range Stage(TiersPerDirection) {
			l.drop(d.first+i, priorityMiss, nil, driver.DropPolicy)
			if c.Mutation == NoIngress && d.first == In0 {
				l.add(d.first+i, 0xffff, nil, goTo(d.after))
			}
			if i == 0 {
				l.add(d.first, priorityNoSet, match(of.Eq(d.set, 0)), goTo(d.after))
			}
		}
	}
}

// RuleNumber is the number of a rule in its flows' cookies.
func RuleNumber(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id))
	return h.Sum32()
}

// PolicySet returns the flows of a policy set. When it holds what flows cannot
// express it returns flows that deny everything, and the reason.
func PolicySet(c Config, s *desired.PolicySet) ([]of.Flow, error) {
	l := &list{}
	seen := map[string]bool{}
	err := direct(l, c, seen, inward, s.ID, s.In)
	if err == nil {
		err = direct(l, c, seen, outward, s.ID, s.Out)
	}
	if err == nil {
		return l.flows, nil
	}
	l = &list{cookie: cookie(KindDrop, reasonNumber(driver.DropPolicy))}
	for _, d := range []direction{outward, inward} {
		l.add(d.first, priorityDefault, match(of.Eq(d.set, s.ID)))
	}
	return l.flows, fmt.Errorf("policy set %s: %w", s.Name, err)
}

func direct(l *list, c Config, seen map[string]bool, d direction, id desired.PolicySetID, tiers []desired.Tier) error {
	if len(tiers) > TiersPerDirection {
		return model.Errorf(model.ErrExhausted, "%d tiers, at most %d are possible", len(tiers), TiersPerDirection)
	}
	set := of.Eq(d.set, id)
	if len(tiers) == 0 {
		l.cookie = cookie(KindDefault, uint32(id))
		l.add(d.first, priorityDefault, match(set), goTo(d.after))
	}
	for i, t := range tiers {
		table, next := d.first+Stage(i), d.first+Stage(i)+1
		if i == len(tiers)-1 {
			next = d.after
		}
		verdict := func(a model.Action) (Kind, []of.Action) {
			switch a {
			case model.Allow:
				return KindAllow, []of.Action{goTo(d.after)}
			case model.Pass:
				return KindPass, []of.Action{goTo(next)}
			case model.Deny:
			}
			return KindDeny, nil // and whatever else it may say
		}
		for _, r := range t.Ordered() {
			if r.Priority < 0 || r.Priority > MaxRulePriority {
				return model.Errorf(model.ErrInvalid, "rule %s has priority %d, possible are 0 to %d", r.ID, r.Priority, MaxRulePriority)
			}
			kind, acts := verdict(r.Action)
			l.cookie = cookie(kind, RuleNumber(r.ID))
			for _, m := range ruleMatches(d, set, r) {
				f := of.Flow{Table: uint8(table), Priority: rulePriority(c, r), Cookie: l.cookie, Match: m, Actions: acts}
				if k := f.Key(); !seen[k] { // an earlier rule of the same weight counts
					seen[k] = true
					l.flows = append(l.flows, f)
				}
			}
		}
		kind, acts := verdict(t.Default)
		l.cookie = cookie(KindDefault, uint32(id))
		if kind == KindDeny {
			l.drop(table, priorityDefault, match(set), driver.DropPolicy)
			continue
		}
		l.add(table, priorityDefault, match(set), acts...)
	}
	return nil
}

// ruleMatches is the product of a rule's peers and ports.
func ruleMatches(d direction, set of.Term, r *desired.Rule) []of.Match {
	var out []of.Match
	for _, p := range portTerms(r.Ports) {
		for _, q := range peerTerms(d, r, p.tracked) {
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
func peerTerms(d direction, r *desired.Rule, tracked bool) []alternative {
	if r.AnyPeer {
		return []alternative{{}}
	}
	var out []alternative
	for id := range r.Identities.All() {
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

// without splits a prefix into those that cover it except for the exceptions.
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
