package openflow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
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

// readNested reads the actions within a CT: a translation, then a mark, then a label.
func (a *CT) readNested(b []byte) error {
	bad := errors.New("ct action with another nested action than nat to one address and port, a mark, and a label, is not supported")
	for len(b) > 0 {
		n := 0
		if len(b) >= 4 {
			n = int(binary.BigEndian.Uint16(b[2:]))
		}
		if n < 16 || n > len(b) || a.Label != 0 {
			return bad
		}
		switch typ := binary.BigEndian.Uint16(b); {
		case typ == actExperiment && n == 24 && binary.BigEndian.Uint16(b[8:]) == nxMove:
			if a.Label = readLabel(b[:n]); a.Label == 0 {
				return bad
			}
		case typ == actSetField:
			act, _, err := readAction(b[:n])
			s, ok := act.(SetField)
			if err != nil || !ok || s.Field != CtMark || s.Value.Lo == 0 || a.Mark != 0 {
				return bad
			}
			a.Mark = uint32(s.Value.Lo)
		case typ != actExperiment || a.NAT != NoNAT || a.Mark != 0 || !a.readNAT(b[:n]):
			return bad
		}
		b = b[n:]
	}
	return nil
}

// readLabel reads a move of a whole field to the lowest bits of the label; 0 = it is
// none.
func readLabel(b []byte) Field {
	from, err := fieldOf(binary.BigEndian.Uint32(b[16:]))
	if err != nil || from.Bits() > CtLabel.Bits() || !bytes.Equal(b, Move{From: from, To: CtLabel}.appendWire(nil)) {
		return 0
	}
	return from
}

// labelPart is the part of the label that a field has place in.
func labelPart(from Field) string {
	if from.Bits() == CtLabel.Bits() {
		return "move:" + fields[from].nxm + "[]->" + fields[CtLabel].nxm + "[]"
	}
	return fmt.Sprintf("move:%s[]->%s[0..%d]", fields[from].nxm, fields[CtLabel].nxm, from.Bits()-1)
}

// execText is what else is done to the connection.
func (a CT) execText() string {
	var p []string
	if a.Mark != 0 {
		p = append(p, fmt.Sprintf("set_field:%#x->ct_mark", a.Mark))
	}
	if a.Label != 0 {
		p = append(p, labelPart(a.Label))
	}
	if len(p) == 0 {
		return ""
	}
	return "exec(" + strings.Join(p, ",") + ")"
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
