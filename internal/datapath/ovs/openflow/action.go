package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Action is one step of a flow. The types are Output, OutputReg, SetField,
// Move, Resubmit, CT, PushVLAN, PopVLAN, DecTTL, CheckLarger, Controller, Choose, Learn
// and, as the first one of a flow only, Meter; all are comparable.
type Action interface {
	fmt.Stringer
	appendWire(b []byte) []byte
}

// Reserved port numbers (OpenFlow 1.4.1 section 7.2.1).
const (
	PortMax        uint32 = 0xffffff00
	PortInPort     uint32 = 0xfffffff8 // send back to where the packet came from
	portTable      uint32 = 0xfffffff9
	portController uint32 = 0xfffffffd
	PortLocal      uint32 = 0xfffffffe
	PortAny        uint32 = 0xffffffff
)

const (
	nxVendor      = 0x00002320
	actOutput     = 0
	actPushVLAN   = 17
	actPopVLAN    = 18
	actDecTTL     = 24
	actSetField   = 25
	actExperiment = 0xffff
	actGroup      = 22
	nxMove        = 6
	nxResubmit    = 14
	nxOutputReg   = 15
	nxCT          = 35
	nxNAT         = 36
	nxController2 = 37
	nxLearn2      = 45
	nxCheckLarger = 49
	propMaxLen    = 0 // of nxController2, as propMeter
	propMeter     = 5
	noTable       = 0xff
	nxInPort      = 0xfff8
	ctCommit      = 1
	ctForce       = 2
	etherTypeVLAN = 0x8100
)

type (
	// Output sends the packet to a port.
	Output struct{ Port uint32 }
	// OutputReg sends the packet to the port whose number a field holds.
	OutputReg struct{ Field Field }
	// SetField writes a whole field.
	SetField struct {
		Field Field
		Value Value
	}
	// Move copies a whole field to another one of the same width, or, of a wider one, to
	// the bits from At on.
	Move struct {
		From, To Field
		At       uint8
	}
	// Resubmit continues in another table, then with the next action.
	Resubmit struct{ Table uint8 }
	// CT sends the packet through connection tracking in the zone that the lower
	// 16 bits of ZoneField hold. With Recirc the packet's tracked copy continues
	// in Table; without, the packet goes on with the next action.
	CT struct {
		Commit    bool
		Force     bool // with Commit: a connection that the other end has begun ends first
		ZoneField Field
		Recirc    bool
		Table     uint8
		NAT       NAT
		To        netip.Addr // of NATSrc and NATDst, of the packet's family
		Port      uint16     // likewise: the port beside To; 0 = the packet's own
		Mark      uint32     // what ct_mark of the connection becomes; 0 = it stays
		Label     Field      // what ct_label of the connection gets, in its lowest bits; 0 = it stays
	}
	// NAT says how CT translates addresses, those in packets that ICMP errors
	// quote included. Where another connection of the zone has the tuple behind the
	// translation, the source gets another port.
	NAT uint8
	// Controller sends the packet, whole or its first MaxLen bytes, to the
	// connections that take packets, as far as a meter lets it: the one numbered
	// Meter, which must exist, or, if Meter is 0, the whole bridge's.
	Controller struct {
		MaxLen uint16
		Meter  uint32
	}
	// GroupAction sends the packet through a bucket of a Group.
	GroupAction struct{ Group uint32 }
	// PushVLAN adds an empty 802.1Q tag.
	PushVLAN struct{}
	// PopVLAN removes the outer tag.
	PopVLAN struct{}
	// DecTTL takes one from the TTL or hop limit, which has to be more than one.
	DecTTL struct{}
	// CheckLarger writes into the lowest bit of a field whether the frame, from its
	// Ethernet header on, has more than Len bytes; of a buffer that is cut into
	// segments later, whether a segment has (Open vSwitch 2.12 and later).
	CheckLarger struct {
		Len  uint16
		Into Field
	}
	// Meter drops the packet when there are more than SetMeter has allowed. In
	// OpenFlow 1.4 it is an instruction, so it stands before all actions.
	Meter struct{ ID uint32 }
)

// The translations, in the order of Nicira's NX_NAT_F flags.
const (
	NoNAT    NAT = iota
	NATKnown     // as the packet's connection was committed, if it was
	NATSrc       // a new connection's source becomes To
	NATDst       // a new connection's destination becomes To
)

// Set writes a number into a field.
func Set[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int](f Field, n T) SetField {
	return SetField{f, Uint(n)}
}

func portText(p uint32) string {
	switch p {
	case PortInPort:
		return "IN_PORT"
	case PortLocal:
		return "LOCAL"
	}
	return strconv.FormatUint(uint64(p), 10)
}

func (a Output) String() string {
	if a.Port >= PortMax {
		return portText(a.Port)
	}
	return "output:" + portText(a.Port)
}

func (a Controller) String() string {
	if a.Meter != 0 {
		return fmt.Sprintf("controller(max_len=%d,meter_id=%d)", a.MaxLen, a.Meter)
	}
	return "CONTROLLER:" + strconv.Itoa(int(a.MaxLen))
}

func (a OutputReg) String() string { return "output:" + fields[a.Field].nxm + "[]" }

func (a SetField) String() string {
	return "set_field:" + a.Field.text(a.Value) + "->" + a.Field.setName()
}

func (a Move) String() string {
	to := "[]"
	if bits := a.From.Bits(); bits != a.To.Bits() {
		to = fmt.Sprintf("[%d..%d]", a.At, int(a.At)+bits-1)
	}
	return "move:" + fields[a.From].nxm + "[]->" + fields[a.To].nxm + to
}

func (a Resubmit) String() string { return "resubmit(," + strconv.Itoa(int(a.Table)) + ")" }

func (a CT) String() string {
	var p []string
	if a.Commit {
		p = append(p, "commit")
	}
	if a.Force {
		p = append(p, "force")
	}
	if a.Recirc {
		p = append(p, "table="+strconv.Itoa(int(a.Table)))
	}
	p = append(p, "zone="+fields[a.ZoneField].nxm+"[0..15]")
	if a.NAT != NoNAT {
		p = append(p, a.natText())
	}
	if exec := a.execText(); exec != "" {
		p = append(p, exec)
	}
	return "ct(" + strings.Join(p, ",") + ")"
}

func (PushVLAN) String() string { return "push_vlan:0x8100" }
func (PopVLAN) String() string  { return "pop_vlan" }
func (DecTTL) String() string   { return "dec_ttl" }
func (a CheckLarger) String() string {
	return fmt.Sprintf("check_pkt_larger(%d)->%s[0]", a.Len, fields[a.Into].nxm)
}
func (a GroupAction) String() string { return "group:" + strconv.FormatUint(uint64(a.Group), 10) }
func (a Meter) String() string       { return "meter:" + strconv.FormatUint(uint64(a.ID), 10) }

func appendHeader(b []byte, typ, n int) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(typ))
	return binary.BigEndian.AppendUint16(b, uint16(n))
}

func appendNX(b []byte, subtype, n int) []byte {
	b = appendHeader(b, actExperiment, n)
	b = binary.BigEndian.AppendUint32(b, nxVendor)
	return binary.BigEndian.AppendUint16(b, uint16(subtype))
}

func (a Output) appendWire(b []byte) []byte {
	b = appendHeader(b, actOutput, 16)
	b = binary.BigEndian.AppendUint32(b, a.Port)
	return append(b, make([]byte, 8)...) // max_len and padding
}

func (a Controller) appendWire(b []byte) []byte {
	if a.Meter != 0 {
		b = append(appendNX(b, nxController2, 32), make([]byte, 6)...)
		b = appendHeader(b, propMaxLen, 8)
		b = append(binary.BigEndian.AppendUint16(b, a.MaxLen), 0, 0)
		return binary.BigEndian.AppendUint32(appendHeader(b, propMeter, 8), a.Meter)
	}
	b = appendHeader(b, actOutput, 16)
	b = binary.BigEndian.AppendUint32(b, portController)
	b = binary.BigEndian.AppendUint16(b, a.MaxLen)
	return append(b, make([]byte, 6)...)
}

// subfield is Nicira's ofs_nbits: offset 0, all bits.
func subfield(f Field) uint16 { return uint16(f.Bits() - 1) }

func (a OutputReg) appendWire(b []byte) []byte {
	b = appendNX(b, nxOutputReg, 24)
	b = binary.BigEndian.AppendUint16(b, subfield(a.Field))
	b = binary.BigEndian.AppendUint32(b, a.Field.header(false))
	return append(b, make([]byte, 8)...)
}

func (a SetField) appendWire(b []byte) []byte {
	start := len(b)
	b = appendHeader(b, actSetField, 0)
	b = appendOXM(b, a.Field, a.Value, ones(a.Field.Bits(), a.Field.Bits()))
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

func (a Move) appendWire(b []byte) []byte {
	b = appendNX(b, nxMove, 24)
	b = binary.BigEndian.AppendUint16(b, uint16(a.From.Bits()))
	b = append(b, 0, 0, 0, a.At) // offsets
	b = binary.BigEndian.AppendUint32(b, a.From.header(false))
	return binary.BigEndian.AppendUint32(b, a.To.header(false))
}

func (a Resubmit) appendWire(b []byte) []byte {
	b = appendNX(b, nxResubmit, 16)
	b = binary.BigEndian.AppendUint16(b, nxInPort)
	return append(b, a.Table, 0, 0, 0)
}

func (a CT) appendWire(b []byte) []byte {
	start := len(b)
	b = appendNX(b, nxCT, 24)
	var flags uint16
	if a.Commit {
		flags = ctCommit
	}
	if a.Force {
		flags |= ctForce
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, a.ZoneField.header(false))
	b = binary.BigEndian.AppendUint16(b, 15) // bits 0..15
	table := uint8(noTable)
	if a.Recirc {
		table = a.Table
	}
	b = append(b, table, 0, 0, 0, 0, 0)
	b = a.appendNAT(b)
	if a.Mark != 0 {
		b = Set(CtMark, a.Mark).appendWire(b)
	}
	if a.Label != 0 {
		b = Move{From: a.Label, To: CtLabel}.appendWire(b)
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

func (PushVLAN) appendWire(b []byte) []byte {
	b = appendHeader(b, actPushVLAN, 8)
	b = binary.BigEndian.AppendUint16(b, etherTypeVLAN)
	return append(b, 0, 0)
}

func (PopVLAN) appendWire(b []byte) []byte { return append(appendHeader(b, actPopVLAN, 8), 0, 0, 0, 0) }

func (a GroupAction) appendWire(b []byte) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, actGroup, 8), a.Group)
}

func (DecTTL) appendWire(b []byte) []byte { return append(appendHeader(b, actDecTTL, 8), 0, 0, 0, 0) }

func (a CheckLarger) appendWire(b []byte) []byte {
	b = appendNX(b, nxCheckLarger, 24)
	b = binary.BigEndian.AppendUint16(b, a.Len)
	b = append(b, 0, 0) // the bit
	b = binary.BigEndian.AppendUint32(b, a.Into.header(false))
	return append(b, make([]byte, 6)...)
}

// appendWire writes the instruction (OpenFlow 1.4.1 section 7.2.4).
func (a Meter) appendWire(b []byte) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, instrMeter, 8), a.ID)
}

// fieldOf finds a field by the header of its exact form.
func fieldOf(h uint32) (Field, error) {
	f, ok := byNumber[classNum{uint16(h >> 16), uint8(h >> 9 & 0x7f)}]
	if !ok || fields[f].class == classExperimenter || h>>8&1 == 1 || h&0xff != uint32(fields[f].bytes) {
		return 0, fmt.Errorf("unknown field %#x", h)
	}
	return f, nil
}

// readAction reads one action and returns the rest.
func readAction(b []byte) (Action, []byte, error) {
	if len(b) < 8 {
		return nil, nil, fmt.Errorf("action cut short: %d bytes", len(b))
	}
	typ, n := int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
	if n < 8 || n%8 != 0 || n > len(b) {
		return nil, nil, fmt.Errorf("action of type %d and length %d in %d bytes", typ, n, len(b))
	}
	body, rest := b[:n], b[n:]
	switch {
	case typ == actOutput && n == 16 && binary.BigEndian.Uint32(body[4:]) == portController:
		return Controller{MaxLen: binary.BigEndian.Uint16(body[8:])}, rest, nil
	case typ == actOutput && n == 16:
		return Output{binary.BigEndian.Uint32(body[4:])}, rest, nil
	case typ == actGroup && n == 8:
		return GroupAction{binary.BigEndian.Uint32(body[4:])}, rest, nil
	case typ == actPushVLAN && n == 8 && binary.BigEndian.Uint16(body[4:]) == etherTypeVLAN:
		return PushVLAN{}, rest, nil
	case typ == actPopVLAN && n == 8:
		return PopVLAN{}, rest, nil
	case typ == actDecTTL && n == 8:
		return DecTTL{}, rest, nil
	case typ == actSetField:
		t, _, err := readOXM(body[4:])
		if err != nil {
			return nil, nil, err
		}
		if t.Mask != ones(t.Field.Bits(), t.Field.Bits()) {
			return nil, nil, fmt.Errorf("masked set_field of %s is not supported", t.Field)
		}
		return SetField{t.Field, t.Value}, rest, nil
	case typ == actExperiment && n >= 16 && binary.BigEndian.Uint32(body[4:]) == nxVendor:
		a, err := readNX(int(binary.BigEndian.Uint16(body[8:])), body)
		return a, rest, err
	}
	return nil, nil, fmt.Errorf("unsupported action of type %d and length %d", typ, n)
}

func readNX(subtype int, b []byte) (Action, error) {
	u16 := func(i int) uint16 { return binary.BigEndian.Uint16(b[i:]) }
	u32 := func(i int) uint32 { return binary.BigEndian.Uint32(b[i:]) }
	switch {
	case subtype == nxResubmit && len(b) == 16 && u16(10) == nxInPort && b[12] != noTable:
		return Resubmit{b[12]}, nil
	case subtype == nxController2 && len(b) == 32 && u32(16) == propMaxLen<<16|8 && u32(24) == propMeter<<16|8 && u32(28) != 0:
		return Controller{MaxLen: u16(20), Meter: u32(28)}, nil
	case subtype == nxOutputReg && len(b) == 24:
		f, err := fieldOf(u32(12))
		if err == nil && u16(10) != subfield(f) {
			err = fmt.Errorf("output of a part of %s is not supported", f)
		}
		return OutputReg{f}, err
	case subtype == nxCheckLarger && len(b) == 24 && u16(12) == 0:
		f, err := fieldOf(u32(14))
		return CheckLarger{u16(10), f}, err
	case subtype == nxMove && len(b) == 24:
		from, err := fieldOf(u32(16))
		if err != nil {
			return nil, err
		}
		to, err := fieldOf(u32(20))
		a := Move{from, to, b[15]}
		if err == nil && (int(u16(10)) != from.Bits() || int(a.At)+from.Bits() > to.Bits() || u32(12)>>8 != 0) {
			err = fmt.Errorf("move of a part of %s is not supported", from)
		}
		return a, err
	case subtype == nxCT && len(b) >= 24:
		f, err := fieldOf(u32(12))
		if err != nil {
			return nil, err
		}
		a := CT{Commit: u16(10)&ctCommit != 0, Force: u16(10)&ctForce != 0, ZoneField: f}
		if b[18] != noTable {
			a.Recirc, a.Table = true, b[18]
		}
		if u16(10)&^(ctCommit|ctForce) != 0 || u16(16) != 15 || u16(22) != 0 {
			return nil, errors.New("ct action with a helper or another zone form is not supported")
		}
		err = a.readNested(b[24:])
		return a, err
	case subtype == nxLearn2:
		return readLearn(b)
	}
	return nil, fmt.Errorf("unsupported Nicira action %d of length %d", subtype, len(b))
}
