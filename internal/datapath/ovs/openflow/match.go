package openflow

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Term is one condition of a match: the bits of Field selected by Mask equal Value.
type Term struct {
	Field Field
	Value Value
	Mask  Value
}

// Match is a conjunction of terms with distinct fields in canonical order; the
// empty match takes every packet.
type Match []Term

// Eq matches a field exactly.
func Eq[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int](f Field, n T) Term { return EqValue(f, Uint(n)) }

// EqValue matches a field exactly.
func EqValue(f Field, v Value) Term { return Term{f, v, ones(f.Bits(), f.Bits())} }

// EqMAC matches an Ethernet address.
func EqMAC(f Field, m [6]byte) Term { return EqValue(f, MAC(m)) }

// EqAddr matches an address.
func EqAddr(f Field, a netip.Addr) Term { return EqValue(f, Addr(a)) }

// Addr is the address that a term of a field of addresses matches.
func (t Term) Addr() netip.Addr { return t.Value.addr(t.Field.Bits() == 128) }

// InPrefix matches the addresses of a prefix; one of length zero yields a term
// that NewMatch drops.
func InPrefix(f Field, p netip.Prefix) Term {
	m := ones(p.Bits(), f.Bits())
	return Term{f, Addr(p.Addr()).and(m), m}
}

// Masked matches the bits of a field that mask selects.
func Masked(f Field, v, mask Value) Term { return Term{f, v.and(mask), mask} }

// State matches connection tracking states that are set and unset.
func State(set, unset uint32) Term {
	return Masked(CtState, Uint(set), Uint(set|unset))
}

// NewMatch makes a canonical match: sorted, without empty terms. When a field
// occurs twice the later term stands.
func NewMatch(terms ...Term) Match {
	m := make(Match, 0, len(terms))
	for _, t := range terms {
		if t.Mask == (Value{}) {
			continue
		}
		if i := slices.IndexFunc(m, func(o Term) bool { return o.Field == t.Field }); i >= 0 {
			m[i] = t
			continue
		}
		m = append(m, t)
	}
	slices.SortFunc(m, func(a, b Term) int { return int(a.Field) - int(b.Field) })
	return m
}

// get returns the value of an exactly matched field.
func (m Match) get(f Field) (uint64, bool) {
	for _, t := range m {
		if t.Field == f && t.Mask == ones(f.Bits(), f.Bits()) {
			return t.Value.Lo, true
		}
	}
	return 0, false
}

// appendOXM writes one OXM TLV.
func appendOXM(b []byte, f Field, v, mask Value) []byte {
	n := int(fields[f].bytes)
	full := ones(f.Bits(), f.Bits())
	b = binary.BigEndian.AppendUint32(b, f.header(mask != full))
	if fields[f].class == classExperimenter {
		b = binary.BigEndian.AppendUint32(b, experimenterONF)
	}
	b = v.append(b, n)
	if mask != full {
		b = mask.append(b, n)
	}
	return b
}

// wireRank orders terms so that a field follows its prerequisites, as the
// specification demands (section 7.2.3.6).
func wireRank(f Field) int {
	switch f {
	case EthType:
		return 0
	case IPProto:
		return 1
	case ICMPType, ICMPv6Type:
		return 2
	case CtState:
		return 3
	case CtNwProto:
		return 4
	default:
		return 5
	}
}

// appendWire writes the match as an ofp_match, padded (section 7.2.3.1).
func (m Match) appendWire(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 1, 0, 0)
	for rank := range 6 {
		for _, t := range m {
			if wireRank(t.Field) == rank {
				b = appendOXM(b, t.Field, t.Value, t.Mask)
			}
		}
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// readOXM reads one TLV and returns the rest.
func readOXM(b []byte) (Term, []byte, error) {
	if len(b) < 4 {
		return Term{}, nil, fmt.Errorf("match field cut short: %d bytes", len(b))
	}
	h := binary.BigEndian.Uint32(b)
	class, num, masked, n := uint16(h>>16), uint8(h>>9&0x7f), h>>8&1 == 1, int(h&0xff)
	b = b[4:]
	if len(b) < n {
		return Term{}, nil, fmt.Errorf("match field %#x cut short", h)
	}
	body, rest := b[:n], b[n:]
	f, ok := byNumber[classNum{class, num}]
	if !ok {
		return Term{}, nil, fmt.Errorf("unknown match field %#x", h)
	}
	if class == classExperimenter {
		if n < 4 || binary.BigEndian.Uint32(body) != experimenterONF {
			return Term{}, nil, fmt.Errorf("unknown match field %#x", h)
		}
		body = body[4:]
	}
	size := int(fields[f].bytes)
	full := ones(f.Bits(), f.Bits())
	if !masked {
		if len(body) != size {
			return Term{}, nil, fmt.Errorf("match field %s has %d bytes, not %d", f, len(body), size)
		}
		return Term{f, readValue(body), full}, rest, nil
	}
	if len(body) != 2*size {
		return Term{}, nil, fmt.Errorf("masked match field %s has %d bytes, not %d", f, len(body), 2*size)
	}
	mask := readValue(body[size:])
	return Term{f, readValue(body[:size]).and(mask), mask}, rest, nil
}

// readMatch reads an ofp_match and returns the rest after its padding.
func readMatch(b []byte) (Match, []byte, error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("match cut short: %d bytes", len(b))
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if t := binary.BigEndian.Uint16(b); t != 1 {
		return nil, nil, fmt.Errorf("match of type %d, not OXM", t)
	}
	padded := (n + 7) / 8 * 8
	if n < 4 || padded > len(b) {
		return nil, nil, fmt.Errorf("match of length %d in %d bytes", n, len(b))
	}
	var terms []Term
	for in := b[4:n]; len(in) > 0; {
		t, rest, err := readOXM(in)
		if err != nil {
			return nil, nil, err
		}
		if slices.ContainsFunc(terms, func(o Term) bool { return o.Field == t.Field }) {
			return nil, nil, fmt.Errorf("match field %s occurs twice", t.Field)
		}
		terms, in = append(terms, t), rest
	}
	return NewMatch(terms...), b[padded:], nil
}

// protoNames are ovs-ofctl's short forms of an Ethernet type and protocol.
var protoNames = []struct {
	name  string
	eth   uint64
	proto int
}{
	{"tcp", 0x0800, 6},
	{"udp", 0x0800, 17},
	{"icmp", 0x0800, 1},
	{"sctp", 0x0800, 132},
	{"tcp6", 0x86dd, 6},
	{"udp6", 0x86dd, 17},
	{"icmp6", 0x86dd, 58},
	{"sctp6", 0x86dd, 132},
	{"ip", 0x0800, -1},
	{"ipv6", 0x86dd, -1},
	{"arp", 0x0806, -1},
}

func (t Term) text() string {
	f, w := t.Field, t.Field.Bits()
	exact := t.Mask == ones(w, w)
	switch fields[f].fmt {
	case fmtCtState:
		return f.String() + "=" + flagText(stateNames, t.Value.Lo, t.Mask.Lo)
	case fmtTCPFlags:
		return f.String() + "=" + flagText(tcpFlagNames, t.Value.Lo, t.Mask.Lo)
	case fmtFrag:
		for name, vm := range fragForms {
			if vm == [2]uint64{t.Value.Lo, t.Mask.Lo} {
				return f.String() + "=" + name
			}
		}
	case fmtIPv4, fmtIPv6:
		if n := t.Mask.prefixLen(w); n >= 0 && !exact {
			return fmt.Sprintf("%s=%s/%d", f, f.text(t.Value), n)
		}
	case fmtDec, fmtHex, fmtMAC, fmtPort:
	}
	if f == VlanVID {
		switch {
		case exact && t.Value.Lo == 0:
			return "vlan_tci=0x0000/0x1fff"
		case exact:
			return fmt.Sprintf("dl_vlan=%d", t.Value.Lo&0xfff)
		case t.Mask.Lo == 0x1000:
			return fmt.Sprintf("vlan_tci=0x%04x/0x1000", t.Value.Lo)
		}
	}
	if exact {
		if f == EthType {
			return fmt.Sprintf("dl_type=0x%04x", t.Value.Lo)
		}
		return f.String() + "=" + f.text(t.Value)
	}
	if fields[f].fmt == fmtDec {
		return fmt.Sprintf("%s=%s/%s", f, t.Value.hex(), t.Mask.hex())
	}
	return fmt.Sprintf("%s=%s/%s", f, f.text(t.Value), f.text(t.Mask))
}

// fragForms are the words of nw_frag: bits 1 = any fragment, 2 = later one.
var fragForms = map[string][2]uint64{
	"no": {0, 0xff}, "yes": {1, 1}, "first": {1, 0xff}, "later": {3, 0xff}, "not_later": {0, 2},
}

// String prints the match as ovs-ofctl does, with fields in this package's order.
func (m Match) String() string {
	var parts []string
	eth, hasEth := m.get(EthType)
	proto, hasProto := m.get(IPProto)
	name, both := "", false
	if hasEth {
		for _, p := range protoNames {
			if p.eth != eth {
				continue
			}
			if p.proto < 0 {
				name = p.name
				break
			}
			if hasProto && uint64(p.proto) == proto {
				name, both = p.name, true
				break
			}
		}
	}
	for _, t := range m {
		switch {
		case t.Field == EthType && name != "":
			parts = append(parts, name)
		case t.Field == IPProto && both:
		default:
			parts = append(parts, t.text())
		}
	}
	return strings.Join(parts, ",")
}
