package openflow

import (
	"encoding/binary"
	"fmt"
	"time"
)

const version = 0x05 // OpenFlow 1.4

// Message types (OpenFlow 1.4.1 section 7.1.1).
const (
	typeHello         = 0
	typeError         = 1
	typeEchoRequest   = 2
	typeEchoReply     = 3
	typeFlowMod       = 14
	typeMultipartReq  = 18
	typeMultipartRep  = 19
	typeBarrierReq    = 20
	typeBarrierRep    = 21
	typeBundleControl = 33
	typeBundleAdd     = 34

	multipartFlow      = 1
	multipartPortStats = 4
	multipartPortDesc  = 13

	bundleOpen      = 0
	bundleOpened    = 1
	bundleCommit    = 4
	bundleCommitted = 5
	bundleDiscard   = 6
	bundleDiscarded = 7
	bundleFlags     = 3 // atomic and ordered

	cmdAdd          = 0
	cmdDelete       = 3
	cmdDeleteStrict = 4

	headerLen  = 8
	maxMessage = 0xffff
)

func appendMessage(b []byte, typ uint8, xid uint32) []byte {
	b = append(b, version, typ, 0, 0)
	return binary.BigEndian.AppendUint32(b, xid)
}

// finish writes the length of the message that starts at start.
func finish(b []byte, start int) []byte {
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

// Mod is one change of a flow table.
type Mod struct {
	// Delete removes the flow with exactly this table, priority and match;
	// otherwise the flow is added, and replaces one of equal key, whose counters it keeps.
	Delete bool
	Flow   Flow
	// All removes every flow of all tables whose cookie has the bits of
	// CookieMask as in Flow.Cookie; the rest of Flow is not used.
	All        bool
	CookieMask uint64
}

// appendFlowMod writes an OFPT_FLOW_MOD (section 7.3.4.1).
func appendFlowMod(b []byte, xid uint32, m Mod) ([]byte, error) {
	start := len(b)
	b = appendMessage(b, typeFlowMod, xid)
	b = binary.BigEndian.AppendUint64(b, m.Flow.Cookie)
	b = binary.BigEndian.AppendUint64(b, m.CookieMask)
	cmd, table := uint8(cmdAdd), m.Flow.Table
	switch {
	case m.All:
		cmd, table = cmdDelete, 0xff
	case m.Delete:
		cmd = cmdDeleteStrict
	}
	b = append(b, table, cmd, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, m.Flow.Priority)
	b = append(b, 0xff, 0xff, 0xff, 0xff) // no buffered packet
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	b = append(b, 0, 0, 0, 0) // flags, importance
	if m.All {
		b = Match(nil).appendWire(b)
	} else {
		b = m.Flow.Match.appendWire(b)
	}
	if !m.All && !m.Delete {
		b = appendInstructions(b, m.Flow.Actions)
	}
	if n := len(b) - start; n > maxMessage-headerLen-16 {
		return nil, fmt.Errorf("flow %.120s... is %d bytes long, more than a message takes", m.Flow, n)
	}
	return finish(b, start), nil
}

// appendBundle writes an OFPT_BUNDLE_CONTROL (section 7.3.9.2).
func appendBundle(b []byte, xid, id uint32, typ uint16) []byte {
	start := len(b)
	b = appendMessage(b, typeBundleControl, xid)
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint16(b, typ)
	b = binary.BigEndian.AppendUint16(b, bundleFlags)
	return finish(b, start)
}

// appendBundleAdd writes a message as part of a bundle (section 7.3.9.6).
func appendBundleAdd(b []byte, xid, id uint32, message func(b []byte, xid uint32) ([]byte, error)) ([]byte, error) {
	start := len(b)
	b = appendMessage(b, typeBundleAdd, xid)
	b = binary.BigEndian.AppendUint32(b, id)
	b = append(b, 0, 0, 0, bundleFlags)
	b, err := message(b, xid)
	if err != nil {
		return nil, err
	}
	return finish(b, start), nil
}

// Filter selects flows for a dump.
type Filter struct {
	Table      uint8 // 255 = all
	Cookie     uint64
	CookieMask uint64
	Used       bool // only flows that have counted a packet
}

// AllFlows selects every flow.
var AllFlows = Filter{Table: 0xff}

func appendMultipart(b []byte, xid uint32, typ uint16) []byte {
	b = appendMessage(b, typeMultipartReq, xid)
	b = binary.BigEndian.AppendUint16(b, typ)
	return append(b, 0, 0, 0, 0, 0, 0)
}

// appendFlowStatsRequest writes a request for flow entries (section 7.3.5.2).
func appendFlowStatsRequest(b []byte, xid uint32, f Filter) []byte {
	start := len(b)
	b = appendMultipart(b, xid, multipartFlow)
	b = append(b, f.Table, 0, 0, 0)
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, f.Cookie)
	b = binary.BigEndian.AppendUint64(b, f.CookieMask)
	return finish(Match(nil).appendWire(b), start)
}

func appendPortRequest(b []byte, xid uint32, typ uint16) []byte {
	start := len(b)
	b = appendMultipart(b, xid, typ)
	if typ == multipartPortStats {
		b = append(b, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	}
	return finish(b, start)
}

// FlowStats is a flow as a bridge holds it. When the flow uses what this
// package does not know, Err says so and only Table, Priority and Cookie of
// Flow are set.
type FlowStats struct {
	Flow           Flow
	Packets, Bytes uint64
	Age            time.Duration
	Err            error
}

// readFlowStats reads the entries of one reply (section 7.3.5.2), all or the used ones.
func readFlowStats(b []byte, used bool, yield func(FlowStats)) error {
	for len(b) > 0 {
		if len(b) < 56 {
			return fmt.Errorf("flow entry cut short: %d bytes", len(b))
		}
		n := int(binary.BigEndian.Uint16(b))
		if n < 56 || n > len(b) {
			return fmt.Errorf("flow entry of length %d in %d bytes", n, len(b))
		}
		e := b[:n]
		b = b[n:]
		if used && binary.BigEndian.Uint64(e[32:]) == 0 {
			continue
		}
		s := FlowStats{
			Age:     time.Duration(binary.BigEndian.Uint32(e[4:]))*time.Second + time.Duration(binary.BigEndian.Uint32(e[8:])),
			Packets: binary.BigEndian.Uint64(e[32:]),
			Bytes:   binary.BigEndian.Uint64(e[40:]),
			Flow: Flow{
				Table: e[2], Priority: binary.BigEndian.Uint16(e[12:]), Cookie: binary.BigEndian.Uint64(e[24:]),
			},
		}
		m, rest, err := readMatch(e[48:])
		if err == nil {
			s.Flow.Match = m
			s.Flow.Actions, err = readInstructions(rest)
		}
		s.Err = err
		yield(s)
	}
	return nil
}

// PortStats counts a port's frames as the switch sees them: Rx came from it.
type PortStats struct {
	Port                                   uint32
	RxPackets, RxBytes, TxPackets, TxBytes uint64
}

// readPortStats reads the entries of one reply (section 7.3.5.7).
func readPortStats(b []byte, yield func(PortStats)) error {
	for len(b) > 0 {
		if len(b) < 80 {
			return fmt.Errorf("port counters cut short: %d bytes", len(b))
		}
		n := int(binary.BigEndian.Uint16(b))
		if n < 80 || n > len(b) {
			return fmt.Errorf("port counters of length %d in %d bytes", n, len(b))
		}
		u := func(i int) uint64 { return binary.BigEndian.Uint64(b[i:]) }
		yield(PortStats{
			Port: binary.BigEndian.Uint32(b[4:]), RxPackets: u(16), TxPackets: u(24), RxBytes: u(32), TxBytes: u(40),
		})
		b = b[n:]
	}
	return nil
}

// PortDesc is a port of a bridge.
type PortDesc struct {
	Port uint32
	Name string
	MAC  [6]byte
}

// readPortDesc reads the entries of one reply (section 7.3.5.8 and 7.2.1).
func readPortDesc(b []byte, yield func(PortDesc)) error {
	for len(b) > 0 {
		if len(b) < 40 {
			return fmt.Errorf("port cut short: %d bytes", len(b))
		}
		n := int(binary.BigEndian.Uint16(b[4:]))
		if n < 40 || n > len(b) {
			return fmt.Errorf("port of length %d in %d bytes", n, len(b))
		}
		name := b[16:32]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		yield(PortDesc{Port: binary.BigEndian.Uint32(b), MAC: [6]byte(b[8:14]), Name: string(name)})
		b = b[n:]
	}
	return nil
}
