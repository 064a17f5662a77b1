package model

import (
	"fmt"
	"math/bits"
	"net/netip"
	"sort"
)

// MaxPolicyEntries is what one policy, or the policies of one group together, may
// take of a host's tables: half of what the eBPF driver has by default
// (docs/adr/0016).
const MaxPolicyEntries = 1 << 19

// portPair is what a rule matches beside its peer: all ports of a protocol, or
// a block of a power of two of them.
type portPair struct {
	proto Protocol
	port  uint16
	bits  uint8  // of the block; 0 = all ports, 16 = one
	name  string // of one port, instead of its number: each peer has at most one of that name
}

// pairsOf returns what a rule matches beside its peers.
func pairsOf(r PolicyRule) []portPair {
	if len(r.Ports) == 0 {
		return []portPair{{proto: AnyProtocol}}
	}
	out := make([]portPair, 0, len(r.Ports))
	for _, m := range r.Ports {
		if m.Name != "" {
			out = append(out, portPair{proto: m.Protocol, bits: 16, name: m.Name})
			continue
		}
		if !m.Protocol.HasPorts() || m.Lo == 0 && m.Hi == 65535 {
			out = append(out, portPair{proto: m.Protocol})
			continue
		}
		for lo := uint32(m.Lo); lo <= uint32(m.Hi); {
			size := uint32(1)
			for size < 1<<16 && lo%(2*size) == 0 && lo+2*size-1 <= uint32(m.Hi) {
				size *= 2
			}
			out = append(out, portPair{proto: m.Protocol, port: uint16(lo), bits: uint8(16 - bits.TrailingZeros32(size))})
			lo += size
		}
	}
	return out
}

// entries are what a pair takes for each peer, beside the one that each peer has.
func (q portPair) entries() int {
	switch q.proto { //nolint:exhaustive // all others are one
	case AnyProtocol:
		return 0
	case ProtoICMP: // of either family
		return 2
	}
	return 1
}

// peerKey is the peer of a rule; the zero value is any peer.
type peerKey struct {
	selector string
	network  bool // endpoints of a network, and on a VLAN network its addresses
	prefix   netip.Prefix
	except   string
}

// peersOf returns a rule's peers, without what they count.
func peersOf(r PolicyRule) map[peerKey]peerPorts {
	out := map[peerKey]peerPorts{}
	for _, p := range r.Peers {
		switch {
		case p.Selector != nil:
			out[peerKey{selector: p.Selector.String()}] = peerPorts{selector: p.Selector}
		case p.CIDR.IsValid():
			k := peerKey{prefix: p.CIDR.Masked()}
			if len(p.Except) > 0 {
				k.except = fmt.Sprint(p.Except)
			}
			out[k] = peerPorts{prefixes: prefixesOf(p)}
		default:
			s := &Selector{Tenant: p.Network.Tenant, Network: p.Network.Name}
			out[peerKey{selector: s.String(), network: true}] = peerPorts{selector: s, prefixes: 2}
		}
	}
	if len(r.Peers) == 0 {
		out[peerKey{}] = peerPorts{prefixes: 1}
	}
	return out
}

// prefixesOf bounds the prefixes that a prefix with exceptions comes to: each
// exception leaves one of each length between.
func prefixesOf(p Peer) (n int) {
	for _, x := range p.Except {
		n += max(0, x.Bits()-p.CIDR.Bits())
	}
	return max(1, n)
}

// peerPorts are the pairs of the rules that name a peer, how many rules name each pair, and
// the entries of each identity or address that the peer stands for.
type peerPorts struct {
	selector *Selector // nil = none
	prefixes int       // beside the identities that it selects
	rules    map[portPair]int
	entries  int
}

// RuleSize returns how many peers a rule names, at least one, and how many blocks
// of ports.
func RuleSize(r PolicyRule) (peers, ports int) {
	for _, p := range peersOf(r) {
		peers += max(1, p.prefixes)
	}
	return peers, len(pairsOf(r))
}

// PolicyMeter keeps an upper bound of the entries that rules of one tenant take
// together on a host, at a cost by rule that does not depend on their number:
// each rule counts by itself, and where two are for the same packets of the same
// peer, they count once. The zero value is empty. It is not safe for several
// goroutines.
type PolicyMeter struct{ in, out directionMeter }

type directionMeter struct {
	peers     map[peerKey]*peerPorts
	selectors map[peerKey]*peerPorts // those of them that are selectors
	entries   int                    // of what is no identity
}

func (m *PolicyMeter) of(d Direction) *directionMeter {
	if d == Out {
		return &m.out
	}
	return &m.in
}

// NewPolicyMeter returns a meter that counts rules.
func NewPolicyMeter(rules []PolicyRule) *PolicyMeter {
	m := &PolicyMeter{}
	for _, r := range rules {
		m.Add(r)
	}
	return m
}

// Add counts a rule.
func (m *PolicyMeter) Add(r PolicyRule) { m.of(r.Direction).change(r, 1) }

// Remove takes back a rule that was added.
func (m *PolicyMeter) Remove(r PolicyRule) { m.of(r.Direction).change(r, -1) }

// Entries bounds the entries of the rules; identities tells how many identities
// a selector selects. It costs as much as the rules name different selectors.
func (m *PolicyMeter) Entries(identities func(Selector) int) (n int) {
	for _, d := range []*directionMeter{&m.in, &m.out} {
		n += d.entries
		for _, p := range d.selectors {
			n += p.entries * identities(*p.selector)
		}
	}
	return n
}

// Check reports whether rules may join the meter's rules when some of these leave, and
// leaves the meter as it was. Otherwise the error, of kind ErrExhausted, says how many
// entries they would take, and fit is how many of them fit.
func (m *PolicyMeter) Check(joining, leaving []PolicyRule, identities func(Selector) int) (fit int, err error) {
	for _, r := range leaving {
		m.Remove(r)
	}
	defer func() {
		for _, r := range leaving {
			m.Add(r)
		}
	}()
	at := 0 // of joining, that the meter counts
	with := func(n int) int {
		for ; at < n; at++ {
			m.Add(joining[at])
		}
		for ; at > n; at-- {
			m.Remove(joining[at-1])
		}
		return m.Entries(identities)
	}
	defer with(0)
	if with(len(joining)) <= MaxPolicyEntries {
		return len(joining), nil
	}
	fit = sort.Search(len(joining), func(i int) bool { return with(i+1) > MaxPolicyEntries })
	return fit, Errorf(ErrExhausted, "its rules would take up to %d entries of a host's tables, where each rule counts its ports for each of its peers, and a selector each identity that it selects; at most %d are allowed: name the peers by fewer selectors, or their ports by protocol (docs/reference/restrictions.md)", with(min(fit+1, len(joining))), MaxPolicyEntries)
}

func (d *directionMeter) change(r PolicyRule, by int) {
	if d.peers == nil {
		d.peers, d.selectors = map[peerKey]*peerPorts{}, map[peerKey]*peerPorts{}
	}
	pairs := pairsOf(r)
	for k, p := range peersOf(r) {
		own := d.peers[k]
		if own == nil {
			own = &p
			own.rules, own.entries = map[portPair]int{}, 1
			d.entries += own.prefixes
			d.peers[k] = own
			if own.selector != nil {
				d.selectors[k] = own
			}
		}
		before := own.entries
		for _, q := range pairs {
			was := own.rules[q]
			own.rules[q] = was + by
			switch {
			case was == 0:
				own.entries += q.entries()
			case was+by == 0:
				own.entries -= q.entries()
				delete(own.rules, q)
			}
		}
		if len(own.rules) == 0 {
			own.entries = 0
			delete(d.peers, k)
			delete(d.selectors, k)
		}
		d.entries += (own.entries - before) * own.prefixes
	}
}
