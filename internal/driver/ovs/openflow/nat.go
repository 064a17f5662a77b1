package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// What NXAST_NAT says that it has.
const (
	natIPv4Min = 1
	natIPv6Min = 4
	natPortMin = 16
)

func (a CT) natText() string {
	to := a.To.String()
	if a.Port != 0 {
		to = netip.AddrPortFrom(a.To, a.Port).String()
	}
	switch a.NAT {
	case NATSrc:
		return "nat(src=" + to + ")"
	case NATDst:
		return "nat(dst=" + to + ")"
	case NoNAT, NATKnown:
	}
	return "nat"
}

// appendNAT writes the translation, an action within the action.
func (a CT) appendNAT(b []byte) []byte {
	if a.NAT == NoNAT {
		return b
	}
	var to []byte
	ranges := uint16(0)
	switch {
	case a.NAT == NATKnown:
	case a.To.Is4():
		ranges, to = natIPv4Min, a.To.AsSlice()
	default:
		ranges, to = natIPv6Min, a.To.AsSlice()
	}
	if a.NAT != NATKnown && a.Port != 0 {
		ranges |= natPortMin
		to = binary.BigEndian.AppendUint16(to, a.Port)
	}
	for len(to)%8 != 0 {
		to = append(to, 0)
	}
	b = append(appendNX(b, nxNAT, 16+len(to)), 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(a.NAT-NATKnown))
	b = binary.BigEndian.AppendUint16(b, ranges)
	return append(b, to...)
}

// readNested reads the actions within a CT: a translation, and then a mark.
func (a *CT) readNested(b []byte) error {
	bad := errors.New("ct action with another nested action than nat to one address and port, and a mark, is not supported")
	for len(b) > 0 {
		n := 0
		if len(b) >= 4 {
			n = int(binary.BigEndian.Uint16(b[2:]))
		}
		if n < 16 || n > len(b) || a.Mark != 0 {
			return bad
		}
		switch typ := binary.BigEndian.Uint16(b); {
		case typ == actSetField:
			act, _, err := readAction(b[:n])
			s, ok := act.(SetField)
			if err != nil || !ok || s.Field != CtMark || s.Value.Lo == 0 {
				return bad
			}
			a.Mark = uint32(s.Value.Lo)
		case typ != actExperiment || a.NAT != NoNAT || !a.readNAT(b[:n]):
			return bad
		}
		b = b[n:]
	}
	return nil
}

func (a *CT) readNAT(b []byte) bool {
	u16 := func(i int) uint16 { return binary.BigEndian.Uint16(b[i:]) }
	if binary.BigEndian.Uint32(b[4:]) != nxVendor || u16(8) != nxNAT {
		return false
	}
	flags, ranges, to := u16(12), u16(14), b[16:]
	if flags == 0 {
		a.NAT = NATKnown
		return ranges == 0 && len(to) == 0
	}
	if flags > 2 {
		return false
	}
	a.NAT = NATKnown + NAT(flags)
	size := map[uint16]int{natIPv4Min: 4, natIPv6Min: 16}[ranges&^natPortMin]
	if size == 0 || len(to) < size {
		return false
	}
	a.To, _ = netip.AddrFromSlice(to[:size])
	to = to[size:]
	if ranges&natPortMin != 0 {
		if len(to) < 2 {
			return false
		}
		a.Port = binary.BigEndian.Uint16(to)
		return a.Port != 0 && len(to) < 10
	}
	return len(to) < 8
}

func parseCT(s string, bad error) (Action, error) {
	var a CT
	zone := false
	for _, p := range splitTop(s) {
		k, v, _ := strings.Cut(p, "=")
		switch k {
		case "nat":
			a.NAT = NATKnown
		case "nat(src", "nat(dst":
			v = strings.TrimSuffix(v, ")")
			if to, err := netip.ParseAddrPort(v); err == nil {
				a.To, a.Port = to.Addr(), to.Port()
			} else if a.To, err = netip.ParseAddr(v); err != nil {
				return nil, bad
			}
			if a.To.Zone() != "" {
				return nil, bad
			}
			if a.NAT = NATSrc; k == "nat(dst" {
				a.NAT = NATDst
			}
		case "commit":
			a.Commit = true
		case "table":
			n, err := strconv.ParseUint(v, 10, 8)
			if err != nil || n == noTable {
				return nil, bad
			}
			a.Recirc, a.Table = true, uint8(n)
		case "zone":
			n, ok := strings.CutSuffix(v, "[0..15]")
			f, known := byNXM[n]
			if !ok || !known {
				return nil, bad
			}
			a.ZoneField, zone = f, true
		default:
			if n, err := fmt.Sscanf(p, "exec(set_field:%v->ct_mark)", &a.Mark); n != 1 || err != nil || a.Mark == 0 {
				return nil, bad
			}
		}
	}
	if !zone {
		return nil, bad
	}
	return a, nil
}
