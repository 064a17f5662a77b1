package openflow

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ParseFlow reads a flow in the form of ovs-ofctl dump-flows, limited to what
// this package prints; counters, durations and ages are skipped.
func ParseFlow(s string) (Flow, error) {
	var f Flow
	head, acts, ok := strings.Cut(strings.TrimSpace(s), "actions=")
	if !ok {
		return f, fmt.Errorf("flow %q has no actions", s)
	}
	var terms []Term
	for _, p := range strings.FieldsFunc(head, func(r rune) bool { return r == ',' || r == ' ' }) {
		k, v, hasValue := strings.Cut(p, "=")
		var err error
		switch {
		case k == "table" || k == "priority" || k == "cookie":
			var n uint64
			n, err = strconv.ParseUint(v, 0, 64)
			switch {
			case k == "cookie":
				f.Cookie = n
			case k == "table" && n < noTable:
				f.Table = uint8(n)
			case k == "priority" && n <= 0xffff:
				f.Priority = uint16(n)
			default:
				err = fmt.Errorf("%s %q is out of range", k, v)
			}
		case k == "duration" || k == "n_packets" || k == "n_bytes" || k == "idle_age" || k == "hard_age" || k == "reset_counts":
		case !hasValue:
			err = fmt.Errorf("unknown word %q", k)
			for _, pn := range protoNames {
				if pn.name == k {
					err = nil
					terms = append(terms, Eq(EthType, pn.eth))
					if pn.proto >= 0 {
						terms = append(terms, Eq(IPProto, pn.proto))
					}
				}
			}
		default:
			var t Term
			if t, err = parseTerm(terms, k, v); err == nil {
				terms = append(terms, t)
			}
		}
		if err != nil {
			return f, fmt.Errorf("parse flow %q: %w", s, err)
		}
	}
	f.Match = NewMatch(terms...)
	var err error
	if f.Actions, err = parseActions(acts); err != nil {
		return f, fmt.Errorf("parse flow %q: %w", s, err)
	}
	return f, nil
}

func parseTerm(before []Term, k, v string) (Term, error) {
	switch k {
	case "vlan_tci":
		switch v {
		case "0x0000/0x1fff":
			return Eq(VlanVID, 0), nil
		case "0x0000/0x1000":
			return Masked(VlanVID, Value{}, Uint(0x1000)), nil
		case "0x1000/0x1000":
			return Masked(VlanVID, Uint(0x1000), Uint(0x1000)), nil
		}
		return Term{}, fmt.Errorf("vlan_tci %q is not supported", v)
	case "dl_vlan":
		n, err := strconv.ParseUint(v, 0, 12)
		return Eq(VlanVID, 0x1000|n), err
	}
	f, ok := matchField(before, k)
	if !ok {
		return Term{}, fmt.Errorf("unknown field %q", k)
	}
	full := ones(f.Bits(), f.Bits())
	switch fields[f].fmt {
	case fmtCtState:
		val, mask, err := parseFlags(stateNames, v)
		return Masked(f, Uint(val), Uint(mask)), err
	case fmtTCPFlags:
		val, mask, err := parseFlags(tcpFlagNames, v)
		return Masked(f, Uint(val), Uint(mask)), err
	case fmtFrag:
		vm, ok := fragForms[v]
		if !ok {
			return Term{}, fmt.Errorf("unknown fragment word %q", v)
		}
		return Masked(f, Uint(vm[0]), Uint(vm[1])), nil
	case fmtDec, fmtHex, fmtMAC, fmtIPv4, fmtIPv6, fmtPort:
	}
	a, m, masked := strings.Cut(v, "/")
	val, err := f.parse(a)
	if err != nil || !masked {
		return Term{f, val, full}, err
	}
	if n, err := strconv.Atoi(m); err == nil && (fields[f].fmt == fmtIPv4 || fields[f].fmt == fmtIPv6) {
		if n < 0 || n > f.Bits() {
			return Term{}, fmt.Errorf("prefix length %q is out of range", m)
		}
		return Masked(f, val, ones(n, f.Bits())), nil
	}
	mask, err := f.parse(m)
	return Masked(f, val, mask), err
}

// matchField finds the field that a match key means, which may depend on the
// protocol before it.
func matchField(before []Term, k string) (Field, bool) {
	proto, _ := NewMatch(before...).get(IPProto)
	switch {
	case k == "tp_src" && proto == 17:
		return UDPSrc, true
	case k == "tp_dst" && proto == 17:
		return UDPDst, true
	case k == "tp_src" && proto == 132:
		return SCTPSrc, true
	case k == "tp_dst" && proto == 132:
		return SCTPDst, true
	case k == "icmp_type" && proto == 58:
		return ICMPv6Type, true
	case k == "icmp_code" && proto == 58:
		return ICMPv6Code, true
	}
	for f := range numFields {
		if fields[f].name == k {
			return f, true
		}
	}
	return 0, false
}

// parse reads a value alone.
func (f Field) parse(s string) (Value, error) {
	switch fields[f].fmt {
	case fmtMAC:
		m, err := net.ParseMAC(s)
		if err != nil || len(m) != 6 {
			return Value{}, fmt.Errorf("%s %q is not an Ethernet address", f, s)
		}
		return MAC([6]byte(m)), nil
	case fmtIPv4, fmtIPv6:
		a, err := netip.ParseAddr(s)
		if err != nil || a.Is4() != (fields[f].fmt == fmtIPv4) || a.Zone() != "" {
			return Value{}, fmt.Errorf("%s %q is not an address of its family", f, s)
		}
		return Addr(a), nil
	case fmtPort:
		switch s {
		case "LOCAL":
			return Uint(PortLocal), nil
		case "IN_PORT":
			return Uint(PortInPort), nil
		}
	case fmtDec, fmtHex, fmtCtState, fmtTCPFlags, fmtFrag:
	}
	h := strings.TrimPrefix(s, "0x")
	if h != s && len(h) > 16 && len(h) <= 32 && f.Bits() == 128 {
		hi, err := strconv.ParseUint(h[:len(h)-16], 16, 64)
		if err != nil {
			return Value{}, err
		}
		lo, err := strconv.ParseUint(h[len(h)-16:], 16, 64)
		return Value{hi, lo}, err
	}
	n, err := strconv.ParseUint(s, 0, min(64, f.Bits()))
	return Value{Lo: n}, err
}

// splitTop splits at commas that are outside parentheses.
func splitTop(s string) []string {
	var out []string
	depth, start := 0, 0
	for i, r := range s {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out, start = append(out, s[start:i]), i+1
			}
		}
	}
	return append(out, s[start:])
}

func parseActions(s string) ([]Action, error) {
	if s == "drop" {
		return nil, nil
	}
	var out []Action
	for _, p := range splitTop(s) {
		a, err := parseAction(p)
		if err != nil {
			return nil, err
		}
		if _, ok := a.(Meter); ok && len(out) > 0 {
			return nil, fmt.Errorf("a meter after other actions in %q", s)
		}
		out = append(out, a)
	}
	return out, nil
}

func parseAction(s string) (Action, error) {
	switch s {
	case "push_vlan:0x8100":
		return PushVLAN{}, nil
	case "pop_vlan":
		return PopVLAN{}, nil
	case "dec_ttl":
		return DecTTL{}, nil
	case "IN_PORT", "LOCAL":
		v, err := InPort.parse(s)
		return Output{uint32(v.Lo)}, err
	}
	bad := fmt.Errorf("unsupported action %q", s)
	if p, ok := strings.CutPrefix(s, "resubmit(,"); ok {
		n, err := strconv.ParseUint(strings.TrimSuffix(p, ")"), 10, 8)
		if err != nil || n == noTable {
			return nil, bad
		}
		return Resubmit{uint8(n)}, nil
	}
	if p, ok := strings.CutPrefix(s, "ct("); ok {
		return parseCT(strings.TrimSuffix(p, ")"), bad)
	}
	if p, ok := strings.CutPrefix(s, "learn("); ok {
		return parseLearn(strings.TrimSuffix(p, ")"), bad)
	}
	if p, ok := strings.CutPrefix(s, "controller("); ok {
		var a Controller
		if n, err := fmt.Sscanf(p, "max_len=%d,meter_id=%d)", &a.MaxLen, &a.Meter); n != 2 || err != nil || a.Meter == 0 {
			return nil, bad
		}
		return a, nil
	}
	if p, ok := strings.CutPrefix(s, "check_pkt_larger("); ok {
		size, field, _ := strings.Cut(p, ")->")
		name, bit := strings.CutSuffix(field, "[0]")
		n, err := strconv.ParseUint(size, 10, 16)
		if f, known := byNXM[name]; known && bit && err == nil {
			return CheckLarger{uint16(n), f}, nil
		}
		return nil, bad
	}
	kind, arg, _ := strings.Cut(s, ":")
	from, to, _ := strings.Cut(arg, "->")
	whole := func(s string) (Field, error) {
		n, ok := strings.CutSuffix(s, "[]")
		f, known := byNXM[n]
		if !ok || !known {
			return 0, bad
		}
		return f, nil
	}
	switch kind {
	case "CONTROLLER":
		n, err := strconv.ParseUint(arg, 10, 16)
		if err != nil {
			return nil, bad
		}
		return Controller{MaxLen: uint16(n)}, nil
	case "meter":
		n, err := strconv.ParseUint(arg, 10, 32)
		if err != nil {
			return nil, bad
		}
		return Meter{uint32(n)}, nil
	case "group":
		n, err := strconv.ParseUint(arg, 10, 32)
		if err != nil {
			return nil, bad
		}
		return Choose{uint32(n)}, nil
	case "output":
		if n, err := strconv.ParseUint(arg, 10, 32); err == nil {
			return Output{uint32(n)}, nil
		}
		f, err := whole(arg)
		return OutputReg{f}, err
	case "move":
		f, err := whole(from)
		if err != nil {
			return nil, err
		}
		name, bits, _ := strings.Cut(to, "[")
		a := Move{From: f}
		if a.To, err = whole(name + "[]"); err != nil {
			return nil, err
		}
		if bits != "]" {
			first, _, _ := strings.Cut(bits, "..")
			n, err := strconv.ParseUint(first, 10, 8)
			if a.At = uint8(n); err != nil {
				return nil, bad
			}
		}
		if !strings.HasSuffix(a.String(), to) || int(a.At)+f.Bits() > a.To.Bits() {
			return nil, bad
		}
		return a, nil
	case "set_field":
		for f := range numFields {
			if f.setName() == to {
				v, err := f.parse(from)
				return SetField{f, v}, err
			}
		}
	}
	return nil, bad
}
