package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Learn adds a flow, or replaces it, that matches packets like this one: of the Ethernet
// type, with this packet's value in Same, and with this packet's value of From in At. It
// writes this packet's value of Load into Into.
type Learn struct {
	Table    uint8
	Priority uint16
	Idle     uint16 // seconds without a packet after which the flow goes
	Limit    uint32 // flows with Cookie in Table, beyond which none is made
	Cookie   uint64
	EthType  uint16
	Same     Field
	At, From Field
	Load     Field
	Into     Field
}

// MaxIdle is the longest time for Learn.Idle.
const MaxIdle = 0xffff * time.Second

// The header of an element of a learned flow (NX_FLOW_MOD_SPEC): its lower bits are
// the width.
const (
	specImmediate = 1 << 13
	specLoad      = 1 << 11
	learnLen      = 40 // without elements
)

func (a Learn) String() string {
	at := fields[a.At].nxm + "[]"
	if a.From != a.At {
		at += "=" + fields[a.From].nxm + "[]"
	}
	return fmt.Sprintf("learn(table=%d,idle_timeout=%d,priority=%d,cookie=%#x,limit=%d,eth_type=%#x,%s[],%s,load:%s[]->%s[])",
		a.Table, a.Idle, a.Priority, a.Cookie, a.Limit, a.EthType, fields[a.Same].nxm, at, fields[a.Load].nxm, fields[a.Into].nxm)
}

func (a Learn) appendWire(b []byte) []byte {
	be, start := binary.BigEndian, len(b)
	b = appendNX(b, nxLearn2, 0)
	b = be.AppendUint16(b, a.Idle)
	b = be.AppendUint16(b, 0) // hard timeout
	b = be.AppendUint16(b, a.Priority)
	b = be.AppendUint64(b, a.Cookie)
	b = append(b, 0, 0, a.Table, 0, 0, 0, 0, 0) // flags, timeouts after FIN
	b = be.AppendUint32(b, a.Limit)
	b = append(b, 0, 0, 0, 0)
	b = be.AppendUint16(b, specImmediate|16)
	b = be.AppendUint16(b, a.EthType)
	b = be.AppendUint32(b, EthType.header(false))
	b = append(b, 0, 0)
	copies := func(kind int, from, to Field) {
		b = be.AppendUint16(b, uint16(kind|from.Bits()))
		b = be.AppendUint32(b, from.header(false))
		b = append(b, 0, 0)
		b = be.AppendUint32(b, to.header(false))
		b = append(b, 0, 0)
	}
	copies(0, a.Same, a.Same)
	copies(0, a.From, a.At)
	copies(specLoad, a.Load, a.Into)
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

var errLearn = errors.New("learn action of another form than this package writes is not supported")

func readLearn(b []byte) (Action, error) {
	be := binary.BigEndian
	if len(b) < learnLen+10 || be.Uint16(b[12:]) != 0 || be.Uint16(b[24:]) != 0 || be.Uint32(b[28:]) != 0 || be.Uint32(b[36:]) != 0 {
		return nil, errLearn
	}
	a := Learn{Idle: be.Uint16(b[10:]), Priority: be.Uint16(b[14:]), Cookie: be.Uint64(b[16:]), Table: b[26], Limit: be.Uint32(b[32:])}
	b = b[learnLen:]
	if be.Uint16(b) != specImmediate|16 || be.Uint16(b[8:]) != 0 {
		return nil, errLearn
	}
	if f, err := fieldOf(be.Uint32(b[4:])); err != nil || f != EthType {
		return nil, errLearn
	}
	a.EthType, b = be.Uint16(b[2:]), b[10:]
	var again Field
	for _, x := range []struct {
		kind     int
		from, to *Field
	}{{0, &a.Same, &again}, {0, &a.From, &a.At}, {specLoad, &a.Load, &a.Into}} {
		if len(b) < 14 || be.Uint16(b[6:]) != 0 || be.Uint16(b[12:]) != 0 {
			return nil, errLearn
		}
		var err, err2 error
		*x.from, err = fieldOf(be.Uint32(b[2:]))
		*x.to, err2 = fieldOf(be.Uint32(b[8:]))
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		if x.from.Bits() != x.to.Bits() || int(be.Uint16(b)) != x.kind|x.from.Bits() {
			return nil, errLearn
		}
		b = b[14:]
	}
	if again != a.Same || len(b) >= 8 {
		return nil, errLearn
	}
	return a, nil
}
