package ebpf

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ruleNumber stands for a rule's id in counters.
func ruleNumber(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id)) // never fails
	if n := h.Sum64(); n != 0 {
		return n
	}
	return 1
}

// rank is a rule as it is compared with others that match: the heavier decides,
// of equals the one with the lower number. It depends on nothing but the rule.
type rank struct {
	weight uint32 // priority and action; 0 = no rule
	id     uint64
}

func rankOf(r *desired.Rule) rank {
	level := uint32(min(max(r.Priority, 0), 1<<22))
	return rank{(level<<actionBits | uint32(toAction(r.Action))) << actionShift, ruleNumber(r.ID)}
}

func (r rank) outranks(o rank) bool {
	return r.weight > o.weight || r.weight == o.weight && r.id < o.id
}

func (r rank) action() uint8 { return uint8(r.weight >> actionShift & (1<<actionBits - 1)) }

// portKey is the part of a key that says which packets.
type portKey struct {
	proto, bits uint8
	port        uint16
}

// maskBit is the bit of a peer's mask that tells of such keys; none for those
// of any protocol.
func (k portKey) maskBit() int {
	class := 2
	switch model.Protocol(k.proto) { //nolint:exhaustive // all others share a place
	case model.ProtoTCP:
		class = 0
	case model.ProtoUDP:
		class = 1
	}
	return class*portMaskBits + 16 - int(k.bits)
}

// portKeys are the fewest prefixes that say which packets a rule is for.
func portKeys(ports []model.PortMatch) []portKey {
	any := []portKey{{bits: anyProtocol}}
	if len(ports) == 0 {
		return any
	}
	spans := map[uint8][]portRange{}
	for _, m := range ports {
		if m.Protocol == model.AnyProtocol {
			return any
		}
		for _, proto := range protocols(m.Protocol) {
			s := portRange{0, 65535}
			if m.Protocol.HasPorts() {
				s = portRange{uint32(m.Lo), uint32(m.Hi)}
			}
			if s.lo <= s.hi {
				spans[proto] = append(spans[proto], s)
			}
		}
	}
	var out []portKey
	for _, proto := range slices.Sorted(maps.Keys(spans)) {
		for _, s := range mergeRanges(spans[proto]) {
			out = append(out, s.portPrefixes(proto)...)
		}
	}
	return out
}

// protocols are the ones that a rule's protocol stands for.
func protocols(p model.Protocol) []uint8 {
	switch {
	case p == model.ProtoICMP:
		return []uint8{uint8(model.ProtoICMP), uint8(model.ProtoICMPv6)}
	case p < 0 || p > 255:
		return nil
	}
	return []uint8{uint8(p)}
}

// portRange is a range of ports, both ends included.
type portRange struct{ lo, hi uint32 }

// mergeRanges are the same ports in disjoint spans, none of which adjoin.
func mergeRanges(list []portRange) (out []portRange) {
	slices.SortFunc(list, func(a, b portRange) int { return int(a.lo) - int(b.lo) })
	for _, s := range list {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// portPrefixes are the fewest port prefixes of a span.
func (s portRange) portPrefixes(proto uint8) (out []portKey) {
	for lo, end := s.lo, s.hi+1; lo < end; {
		size, bits := uint32(1), uint8(16)
		for bits > 0 && lo&(size*2-1) == 0 && lo+size*2 <= end {
			size, bits = size*2, bits-1
		}
		out = append(out, portKey{proto, bits, uint16(lo)})
		lo += size
	}
	return out
}

// peerKeys calls fn for each peer of a rule but identities, with the part of its
// keys that says who; twice for one that is named twice.
func peerKeys(r *desired.Rule, fn func(ruleKey)) {
	if r.AnyPeer {
		fn(ruleKey{Kind: peerAny})
		return
	}
	for _, c := range r.CIDRs {
		for _, p := range exceptPrefixes(c.Prefix.Masked(), c.Except) {
			fn(cidrKey(p, c.Network))
		}
	}
}

func identityKey(id model.Identity) ruleKey {
	return ruleKey{Kind: peerIdentity, Peer: [2]uint64{0, uint64(id)}}
}

func cidrKey(p netip.Prefix, scope model.NetworkID) ruleKey {
	a := p.Addr().As16()
	k := ruleKey{Kind: peerCIDR6, Bits: uint8(p.Bits()), Scope: uint32(scope)}
	if p.Addr().Is4() {
		k.Kind = peerCIDR4
	}
	k.Peer = [2]uint64{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])}
	return k
}

// exceptPrefixes are the fewest prefixes of the addresses of p that are in no
// exception: at most as many as an exception is longer than p, for each.
func exceptPrefixes(p netip.Prefix, except []netip.Prefix) []netip.Prefix {
	var inside []netip.Prefix
	for _, e := range except {
		switch {
		case e.Addr().Is4() != p.Addr().Is4() || !e.Overlaps(p):
		case e.Bits() <= p.Bits():
			return nil
		default:
			inside = append(inside, e)
		}
	}
	if len(inside) == 0 {
		return []netip.Prefix{p}
	}
	low, high := halves(p)
	return append(exceptPrefixes(low, inside), exceptPrefixes(high, inside)...)
}

// halves are the two prefixes one longer than p, which is not a single address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits()
	low = netip.PrefixFrom(p.Addr(), bits+1)
	b := p.Addr().AsSlice()
	b[bits/8] |= 0x80 >> (bits % 8)
	a, _ := netip.AddrFromSlice(b) // of the same length
	return low, netip.PrefixFrom(a, bits+1)
}

// tierKey is what the rules of the i-th tier are found under: the tier, so that
// they stay where they are when another one comes before it.
func tierKey(tiers []desired.Tier, i int) uint8 {
	for j := range tiers {
		if j != i && tiers[j].Tier == tiers[i].Tier {
			return 0xf0 + uint8(i)
		}
	}
	return uint8(tiers[i].Tier)
}
