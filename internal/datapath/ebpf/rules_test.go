package ebpf

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// asked is what the programs ask of a set: a peer and a packet.
type asked struct {
	dir   uint8
	id    model.Identity
	addr  netip.Addr
	net   model.NetworkID
	proto model.Protocol
	port  uint16
}

// lookup finds what the programs find in the first tier under a header, by what
// the header and the peers' masks say is in use (bpf/policy.h).
func lookup(have map[ruleKey]rule, head policySet, q asked) (best rank) {
	g := head.Stages[q.dir][0]
	weigh := func(k ruleKey) uint64 {
		r := have[k]
		if w := r.at(head.Generation); w.weight > best.weight || w.weight > 0 && w.weight == best.weight && w.id < best.id {
			best = w
		}
		return r.Ports
	}
	ask := func(k ruleKey) {
		k.Instance, k.Dir, k.Tier, k.PortBits = head.Instance, q.dir, g.Tier, anyProtocol
		mask := weigh(k)
		k.Proto = uint8(q.proto)
		for bits := range uint8(portMaskBits) {
			if mask>>(portKey{proto: k.Proto, bits: bits}.maskBit())&1 != 0 {
				k.PortBits, k.Port = bits, uint16(uint32(q.port)>>(16-bits)<<(16-bits))
				weigh(k)
			}
		}
	}
	if g.Kinds>>peerAny&1 != 0 {
		ask(ruleKey{Kind: peerAny})
	}
	if g.Kinds>>peerIdentity&1 != 0 {
		ask(identityKey(q.id))
	}
	for _, scope := range []model.NetworkID{0, q.net} {
		for bits := range q.addr.BitLen() + 1 {
			word, at := 0, bits
			if !q.addr.Is4() {
				word, at = 1+bits/64, bits%64
			}
			if scope != 0 {
				word += lengthWords
			}
			p, _ := q.addr.Prefix(bits)
			if k := cidrKey(p, scope); g.Kinds>>k.Kind&1 != 0 && g.Lengths[word]>>at&1 != 0 {
				ask(k)
			}
		}
	}
	return best
}

// scan finds the rule that decides by reading all of a tier.
func scan(tier desired.Tier, q asked) (best *desired.Rule) {
	for _, r := range tier.Rules.All() {
		if len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(m model.PortMatch) bool { return m.Matches(q.proto, q.port) }) {
			continue
		}
		if !r.AnyPeer && !r.Identities.Has(q.id) && !slices.ContainsFunc(r.CIDRs, func(c desired.CIDR) bool {
			return (c.Network == 0 || c.Network == q.net) && c.Prefix.Contains(q.addr) &&
				!slices.ContainsFunc(c.Except, func(x netip.Prefix) bool { return x.Contains(q.addr) })
		}) {
			continue
		}
		switch {
		case best == nil:
			best = r
		case r.Priority == best.Priority && r.Action == best.Action:
			if ruleNumber(r.ID) < ruleNumber(best.ID) {
				best = r
			}
		case desired.CompareRules(r, best) < 0:
			best = r
		}
	}
	return best
}

// dice makes random rules that meet one another.
type dice struct{ *rand.Rand }

func (d dice) address() netip.Addr {
	if d.IntN(3) == 0 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 8: byte(d.IntN(2)) << 7, 15: byte(d.IntN(8))})
	}
	return netip.AddrFrom4([4]byte{10, 0, byte(d.IntN(2)), byte(d.IntN(8))})
}

func (d dice) rule(id string) *desired.Rule {
	r := &desired.Rule{ID: id, Priority: d.IntN(3) * 10000, Action: []model.Action{model.Allow, model.Deny, model.Pass}[d.IntN(3)]}
	switch d.IntN(3) {
	case 0:
		r.AnyPeer = true
	case 1:
		r.Identities = desired.IdentitiesOf(model.Identity(300+d.IntN(3)), 310)
	}
	for !r.AnyPeer && d.IntN(2) == 0 {
		a := d.address()
		p, _ := a.Prefix(a.BitLen() - d.IntN(a.BitLen()+1))
		c := desired.CIDR{Prefix: p, Network: model.NetworkID(d.IntN(2))}
		for d.IntN(2) == 0 {
			e, _ := a.Prefix(min(a.BitLen(), max(0, p.Bits()-1+d.IntN(a.BitLen()-p.Bits()+2))))
			c.Except = append(c.Except, e)
			a = d.address()
			if a.Is4() != p.Addr().Is4() {
				break
			}
		}
		r.CIDRs = append(r.CIDRs, c)
	}
	for d.IntN(2) == 0 {
		m := model.PortMatch{Protocol: []model.Protocol{model.AnyProtocol, model.ProtoTCP, model.ProtoUDP, model.ProtoICMP, 47}[d.IntN(5)], Hi: 65535}
		if m.Protocol.HasPorts() {
			m.Lo = uint16(d.IntN(20))
			m.Hi = m.Lo + uint16(d.IntN(20))
		}
		r.Ports = append(r.Ports, m)
	}
	return r
}

func (d dice) question() asked {
	q := asked{id: model.Identity(299 + d.IntN(5)), addr: d.address(), net: model.NetworkID(1 + d.IntN(2))}
	q.proto = []model.Protocol{model.ProtoTCP, model.ProtoUDP, model.ProtoICMP, model.ProtoICMPv6, 47, 50}[d.IntN(6)]
	if q.proto.HasPorts() {
		q.port = uint16(d.IntN(42))
	}
	return q
}

// turned is what is written of one set, with no kernel under it.
type turned struct {
	t    testing.TB
	x    *ruleIndex
	head policySet
}

func newTurned(t testing.TB) *turned {
	t.Helper()
	table := &ruleTable{w: &writer{}, of: map[uint32]map[ruleKey]rule{}, most: 1 << 20}
	head := policySet{Instance: 1}
	return &turned{t, newRuleIndex(table, head), head}
}

func (u *turned) have() map[ruleKey]rule { return u.x.t.of[1] }

// turn makes the set s, after as many writes as cut says; it returns how many there would
// be. Cut short, the header stays, and the index is started again.
func (u *turned) turn(s *desired.PolicySet, cut int) int {
	u.t.Helper()
	e := u.x.edit(func(*desired.Rule) {})
	if err := e.to(s); err != nil {
		u.t.Fatal(err)
	}
	u.x.settled = u.x.head.Generation
	writes, _, _ := e.plan()
	for i, w := range writes {
		if i == cut {
			u.x = newRuleIndex(u.x.t, u.head)
			return len(writes)
		}
		if u.have() == nil {
			u.x.t.of[1] = map[ruleKey]rule{}
		}
		u.have()[w.k] = w.v
	}
	u.head = e.header(s)
	u.x.head = u.head
	e.collectUnneeded()
	return len(writes)
}

// clean takes out what is stale, as ruleIndex.clean does.
func (u *turned) clean() {
	for k := range u.x.stale {
		if v := u.have()[k]; u.x.isFullyNeeded(k) {
			continue
		} else if len(u.x.peers[k]) > 0 {
			v.Ports = u.x.mask(k)
			u.have()[k] = v
		} else {
			delete(u.have(), k)
		}
	}
	clear(u.x.stale)
}

// TestRuleLookupEqualsAScan compares what the programs find with a reading of all
// rules, while rules come, change and go, changes break off, and packets ask
// under the header from before the change while it is being written and after.
func TestRuleLookupEqualsAScan(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(3, 4))}
	ask := func(what string, round int, u *turned, head policySet, tier desired.Tier) {
		t.Helper()
		for range 30 {
			q, want := d.question(), rank{}
			if r := scan(tier, q); r != nil {
				want = rankOf(r)
			}
			if got := lookup(u.have(), head, q); got != want {
				t.Fatalf("round %d, %s: %+v: rule %x, want %x of\n%v", round, what, q, got, want, tier.Ordered())
			}
		}
	}
	for round := range 150 {
		u := newTurned(t)
		tier := desired.Tier{Tier: 10, Default: model.Pass}
		for range 12 {
			before, head := tier, u.head
			for range 1 + d.IntN(4) {
				id := strconv.Itoa(d.IntN(12))
				switch old, ok := tier.Rules.Get(id); {
				case ok && d.IntN(3) == 0:
					tier.Rules = tier.Rules.Delete(id)
				case ok && d.IntN(3) == 0 && !old.AnyPeer: // a label's change
					now := *old
					now.Identities = now.Identities.With(model.Identity(299 + d.IntN(5))).Without(model.Identity(299 + d.IntN(5)))
					tier.Rules = tier.Rules.Set(id, &now)
				default:
					tier.Rules = tier.Rules.Set(id, d.rule(id))
				}
			}
			s := &desired.PolicySet{ID: 1, In: []desired.Tier{tier}}
			if d.IntN(3) == 0 { // what breaks off need not be what comes then
				other, id := tier, strconv.Itoa(d.IntN(12))
				other.Rules = other.Rules.Set(id, d.rule(id))
				u.turn(&desired.PolicySet{ID: 1, In: []desired.Tier{other}}, d.IntN(5))
				if u.head.Generation == head.Generation {
					ask("after a change that broke off", round, u, head, before)
				} else {
					before, head = other, u.head
				}
			}
			u.turn(s, -1)
			ask("a packet from before the change", round, u, head, before)
			ask("a packet from after it", round, u, u.head, tier)
			if d.IntN(2) == 0 {
				u.clean()
				ask("after what is stale went", round, u, u.head, tier)
			}
			if d.IntN(4) == 0 { // a restart
				u.x = newRuleIndex(u.x.t, u.head)
				was := u.head
				if n := u.turn(s, -1); n > 0 && len(u.x.stale) == 0 {
					t.Fatalf("round %d: after a restart %d entries are written, and nothing has changed", round, n)
				}
				u.head.Generation = was.Generation + 1
				ask("after a restart", round, u, u.head, tier)
			}
		}
		u.turn(&desired.PolicySet{ID: 1}, -1)
		u.clean()
		for _, g := range u.x.stages {
			if g.Kinds != 0 || g.Lengths != (stage{}).Lengths {
				t.Fatalf("round %d: %+v is asked for where there are no rules", round, g)
			}
		}
		if n := len(u.have()); n != 0 || len(u.x.peers)+len(u.x.more)+len(u.x.lengths) != 0 {
			t.Fatalf("round %d: %d entries, %d peers, %d others and %d lengths are left of no rules", round, n, len(u.x.peers), len(u.x.more), len(u.x.lengths))
		}
	}
}

// TestPortKeysCoverTheirPortsOnly: the keys of a rule's ports are for these ports and no others,
// and no port has two of one rule.
func TestPortKeysCoverTheirPortsOnly(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(5, 6))}
	for range 2000 {
		var list []model.PortMatch
		for range 1 + d.IntN(4) {
			lo := d.IntN(20)
			if d.IntN(4) == 0 {
				lo = 65535 - lo
			}
			list = append(list, tcp16(lo, lo+d.IntN(10))...)
		}
		keys := portKeys(list)
		for _, port := range []int{d.IntN(32), d.IntN(32), 65535 - d.IntN(22), d.IntN(65536)} {
			n, want := 0, 0
			for _, k := range keys {
				if port>>(16-k.bits) == int(k.port)>>(16-k.bits) {
					n++
				}
			}
			if slices.ContainsFunc(list, func(m model.PortMatch) bool { return m.Matches(model.ProtoTCP, uint16(port)) }) {
				want = 1
			}
			if n != want {
				t.Fatalf("port %d has %d keys of %v, want %d: %v", port, n, list, want, keys)
			}
		}
	}
}

// unfriendly are 10,000 rules each.
var unfriendly = map[string]func(i int) desired.Rule{
	"groups": func(i int) desired.Rule {
		return desired.Rule{Identities: desired.IdentitiesOf(model.Identity(300 + i%100)), Ports: tcp16(i, i)}
	},
	"ports of anybody": func(i int) desired.Rule { return desired.Rule{AnyPeer: true, Ports: tcp16(i, i)} },
	"one port of anybody": func(i int) desired.Rule {
		return desired.Rule{AnyPeer: true, Priority: 1 + i%100, Ports: tcp16(80, 80)}
	},
	"port ranges that overlap": func(i int) desired.Rule {
		return desired.Rule{AnyPeer: true, Ports: tcp16(i+1, i+1+20000)}
	},
	"nested CIDRs": func(i int) desired.Rule {
		p, _ := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}).Prefix(8 + i%25)
		return desired.Rule{CIDRs: []desired.CIDR{{Prefix: p}}, Ports: tcp16(i%7, i%7+100)}
	},
	"ports of a wide CIDR and of CIDRs in it": func(i int) desired.Rule {
		p := netip.MustParsePrefix("10.0.0.0/8")
		if i%2 == 1 {
			p, _ = netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}).Prefix(24)
		}
		return desired.Rule{CIDRs: []desired.CIDR{{Prefix: p}}, Ports: tcp16(i, i)}
	},
	"IPv6 CIDRs of all lengths": func(i int) desired.Rule {
		a := [16]byte{0: 0xfd, 1: byte(i >> 8), 2: byte(i)}
		binary.BigEndian.PutUint32(a[12:], uint32(i))
		p, _ := netip.AddrFrom16(a).Prefix(i % 129)
		return desired.Rule{CIDRs: []desired.CIDR{{Prefix: p}}, Ports: tcp16(i, i+9)}
	},
	"CIDRs with exceptions": func(i int) desired.Rule {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		return desired.Rule{CIDRs: []desired.CIDR{{Prefix: p, Except: []netip.Prefix{netip.PrefixFrom(p.Addr().Next(), 32)}}}, Ports: tcp16(i, i)}
	},
}

func tcp16(lo, hi int) []model.PortMatch {
	return []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(lo), Hi: uint16(min(hi, 65535))}}
}

// rulesLike are n rules of a shape.
func rulesLike(n int, shape func(i int) desired.Rule) (out desired.Rules) {
	for i := range n {
		r := shape(i)
		r.ID, r.Action = strconv.Itoa(i), model.Allow
		out = out.Set(r.ID, &r)
	}
	return out
}

// TestMapUseGrowsWithTheRules: what 10,000 rules take grows with the rules, however they lie in
// one another, and leaves room for others.
func TestMapUseGrowsWithTheRules(t *testing.T) {
	for name, shape := range unfriendly {
		u := newTurned(t)
		rules := rulesLike(10000, shape)
		u.turn(&desired.PolicySet{ID: 1, In: []desired.Tier{{Rules: rules}}}, -1)
		sum := 0
		for _, r := range rules.All() {
			peers, err := u.x.edit(nil).peersOf(r)
			if err != nil {
				t.Fatal(err)
			}
			sum += len(peers) * (1 + len(portKeys(r.Ports)))
		}
		t.Logf("%s: %d entries", name, len(u.have()))
		if n := len(u.have()); n > sum || n > 400_000 {
			t.Errorf("%s: %d entries, the rules by themselves %d", name, n, sum)
		}
	}
}
