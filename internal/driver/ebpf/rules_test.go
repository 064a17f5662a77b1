package ebpf

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// lookup finds what the program finds: the best of the longest matches.
func (c *compiledSet) lookup(dir uint8, id model.Identity, a netip.Addr, net model.NetworkID, proto model.Protocol, port uint16) (rule, bool) {
	var best rule
	found := false
	try := func(kind uint8, peer uint32) {
		for bits := int(ruleBitsProto + 16); bits >= ruleBitsAny; bits-- {
			k := ruleKey{Bits: uint32(bits), Dir: dir, Kind: kind, Peer: peer}
			if bits >= ruleBitsProto {
				k.Proto = uint8(proto)
				v := port &^ (1<<(ruleBitsProto+16-bits) - 1)
				k.Port = [2]byte{byte(v >> 8), byte(v)}
			} else if bits != ruleBitsAny {
				continue
			}
			if r, ok := c.rules[k]; ok {
				if !found || r.Rank < best.Rank {
					best, found = r, true
				}
				return
			}
		}
	}
	try(peerAny, 0)
	try(peerIdentity, uint32(id))
	for _, scope := range []uint32{0, uint32(net)} {
		for bits := a.BitLen(); bits >= 0; bits-- {
			p, err := a.Prefix(bits)
			if err != nil {
				continue
			}
			k := cidrKey{Bits: uint32(cidrBitsFixed + bits), Dir: dir, Family: 6, Scope: scope, IP: p.Addr().As16()}
			if a.Is4() {
				k.Family, k.Bits = 4, k.Bits+96
			}
			if class, ok := c.cidrs[k]; ok {
				if class != 0 {
					try(peerClass, class)
				}
				break
			}
		}
	}
	return best, found
}

// TestCompileEqualsScan compares the flattened rules with a scan of the list,
// over random overlapping ports, nested prefixes with exceptions and peers.
func TestCompileEqualsScan(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		tier := desired.Tier{Default: model.Pass}
		address := func() netip.Addr {
			if rnd.IntN(3) == 0 {
				return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(rnd.IntN(8))})
			}
			return netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(2)), byte(rnd.IntN(8))})
		}
		for i := range rnd.IntN(12) {
			r := desired.Rule{ID: strconv.Itoa(i), Action: []model.Action{model.Allow, model.Deny, model.Pass}[rnd.IntN(3)]}
			switch rnd.IntN(3) {
			case 0:
				r.AnyPeer = true
			case 1:
				r.Identities = desired.IdentitiesOf(model.Identity(300+rnd.IntN(3)), 310)
			}
			for !r.AnyPeer && rnd.IntN(2) == 0 {
				a := address()
				p, _ := a.Prefix(a.BitLen() - rnd.IntN(a.BitLen()+1))
				c := desired.CIDR{Prefix: p, Network: model.NetworkID(rnd.IntN(2))}
				if rnd.IntN(2) == 0 {
					e, _ := a.Prefix(p.Bits() + rnd.IntN(a.BitLen()-p.Bits()+1))
					c.Except = append(c.Except, e)
				}
				r.CIDRs = append(r.CIDRs, c)
			}
			for rnd.IntN(2) == 0 {
				m := model.PortMatch{Protocol: []model.Protocol{model.AnyProtocol, model.ProtoTCP, model.ProtoUDP, model.ProtoICMP, 47}[rnd.IntN(5)], Hi: 65535}
				if m.Protocol.HasPorts() {
					m.Lo = uint16(rnd.IntN(20))
					m.Hi = m.Lo + uint16(rnd.IntN(20))
				}
				r.Ports = append(r.Ports, m)
			}
			tier.Rules = tier.Rules.Set(r.ID, &r)
		}
		rules := tier.Ordered()
		c, err := compileSet(&desired.PolicySet{ID: 1, In: []desired.Tier{tier}})
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			id, a, net := model.Identity(299+rnd.IntN(5)), address(), model.NetworkID(1+rnd.IntN(2))
			proto := []model.Protocol{model.ProtoTCP, model.ProtoUDP, model.ProtoICMP, model.ProtoICMPv6, 47, 50}[rnd.IntN(6)]
			var port uint16
			if proto.HasPorts() {
				port = uint16(rnd.IntN(42))
			}
			want := slices.IndexFunc(rules, func(r *desired.Rule) bool {
				if len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(m model.PortMatch) bool { return m.Matches(proto, port) }) {
					return false
				}
				return r.AnyPeer || r.Identities.Has(id) || slices.ContainsFunc(r.CIDRs, func(c desired.CIDR) bool {
					return (c.Network == 0 || c.Network == net) && c.Prefix.Contains(a) &&
						!slices.ContainsFunc(c.Except, func(x netip.Prefix) bool { return x.Contains(a) })
				})
			})
			got := -1
			if r, ok := c.lookup(dirIn, id, a, net, proto, port); ok {
				got = int(r.Rank)
			}
			if got != want {
				t.Fatalf("round %d: identity %d, %s on %d, %s:%d: rule %d, want %d of\n%+v", round, id, a, net, proto, port, got, want, rules)
			}
		}
	}
}

// TestCompileSizes checks the entries and the time that 10,000 rules of
// unfriendly shapes take.
func TestCompileSizes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for name, test := range map[string]struct {
		rule func(i int) desired.Rule
		most int
	}{
		"nested CIDRs": {func(i int) desired.Rule {
			a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
			p, _ := a.Prefix(8 + i%25)
			return desired.Rule{CIDRs: []desired.CIDR{{Prefix: p}}, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(i % 7), Hi: uint16(i%7 + 100)}}}
		}, 1 << 20},
		"overlapping port ranges": {func(int) desired.Rule {
			lo := rnd.IntN(65536)
			return desired.Rule{AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(lo), Hi: uint16(lo + rnd.IntN(65536-lo))}}}
		}, 1 << 17},
		"any and groups": {func(i int) desired.Rule {
			r := desired.Rule{AnyPeer: i%2 == 0, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(i), Hi: uint16(i)}}}
			if i%2 == 1 {
				r.Identities = desired.IdentitiesOf(model.Identity(300 + i%100))
			}
			return r
		}, 10000},
	} {
		s := &desired.PolicySet{ID: 1, In: []desired.Tier{{}}}
		for i := range 10000 {
			r := test.rule(i)
			r.ID, r.Action = strconv.Itoa(i), model.Allow
			s.In[0].Rules = s.In[0].Rules.Set(r.ID, &r)
		}
		start := time.Now()
		c, err := compileSet(s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: %d rule entries, %d prefixes, %v", name, len(c.rules), len(c.cidrs), time.Since(start))
		if len(c.rules) > test.most {
			t.Errorf("%s: %d entries, want at most %d", name, len(c.rules), test.most)
		}
	}
}
