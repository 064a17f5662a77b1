package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Packets that the switch sends here, and the meter that bounds them
// (OpenFlow 1.4.1 sections 7.3.2, 7.3.4.4, 7.3.5.11 and 7.4.1).
const (
	typeSetConfig = 9
	typePacketIn  = 10
	typePacketOut = 13
	typeMeterMod  = 29

	multipartMeter = 9

	meterController = 0xfffffffe // of all packets to controllers
	meterAll        = 0xffffffff
	meterAdd        = 0
	meterModify     = 1
	meterDelete     = 2
	meterFlags      = 2 | 4 | 8 // packets per second, with burst, counted
	bandDrop        = 1

	errMeterMod    = 12
	errMeterExists = 1
)

// PacketIn is a packet that a flow with a Controller action sent here.
type PacketIn struct {
	Table  uint8
	Cookie uint64 // of that flow
	Match  Match  // metadata that this package knows (port, registers), without zeros
	Frame  []byte
}

// Register returns a 32-bit field of the metadata, 0 when it is not there.
func (p PacketIn) Register(f Field) uint32 {
	v, _ := p.Match.get(f)
	return uint32(v)
}

// Addr returns an address of the metadata, the zero one when it is not there.
func (p PacketIn) Addr(f Field) netip.Addr {
	for _, t := range p.Match {
		if t.Field == f {
			return t.Value.addr(f.Bits() == 128)
		}
	}
	return netip.Addr{}
}

// readPacketIn reads the body of an OFPT_PACKET_IN.
func readPacketIn(b []byte) (PacketIn, error) {
	if len(b) < 24 {
		return PacketIn{}, fmt.Errorf("packet-in cut short: %d bytes", len(b))
	}
	p := PacketIn{Table: b[7], Cookie: binary.BigEndian.Uint64(b[8:])}
	n := int(binary.BigEndian.Uint16(b[18:]))
	end := 16 + (n+7)/8*8 + 2
	if n < 4 || end > len(b) {
		return PacketIn{}, fmt.Errorf("packet-in with metadata of length %d in %d bytes", n, len(b))
	}
	for in := b[20 : 16+n]; len(in) >= 4; {
		size := 4 + int(in[3])
		if size > len(in) {
			return PacketIn{}, errors.New("packet-in with metadata is truncated")
		}
		if t, _, err := readOXM(in[:size]); err == nil { // there are fields that no flow of ours uses
			p.Match = append(p.Match, t)
		}
		in = in[size:]
	}
	p.Frame = b[end:]
	return p, nil
}

// ReceivePackets makes the switch send packets of Controller actions to this
// connection, at most rate a second over the whole bridge; fn is called from
// the connection's goroutine and must not wait. Call it once. An error of type
// *Error means that the switch cannot bound them, and then sends none.
func (c *Conn) ReceivePackets(ctx context.Context, rate uint32, fn func(PacketIn)) error {
	build := func(xid uint32) ([]byte, error) {
		b := appendMeterMod(nil, xid, meterDelete, meterController, 0) // a bound that a dead process left
		b = appendMeterMod(b, xid+1, meterAdd, meterController, rate)
		return finish(appendMessage(b, typeBarrierReq, xid+2), len(b)), nil
	}
	if err := c.exchangeTolerant(ctx, 3, build); err != nil {
		return fmt.Errorf("limit the packets from the switch: %w", err)
	}
	return c.ReceiveUnbounded(ctx, fn)
}

// SetMeter makes flows with a Meter of that ID, not 0, let rate packets a second
// through, all together. An error of type *Error means that the switch cannot.
func (c *Conn) SetMeter(ctx context.Context, id, rate uint32) error {
	var err error
	for _, command := range []uint16{meterModify, meterAdd} {
		err = c.exchangeTolerant(ctx, 2, func(xid uint32) ([]byte, error) {
			b := appendMeterMod(nil, xid, command, id, rate)
			return finish(appendMessage(b, typeBarrierReq, xid+1), len(b)), nil
		})
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("set meter %d: %w", id, err)
}

// SendPacket makes the switch send a frame out of a port.
func (c *Conn) SendPacket(port uint32, frame []byte) error {
	return c.packetOut(portController, port, frame)
}

// SendTagged is SendPacket with an 802.1Q tag of a VLAN.
func (c *Conn) SendTagged(port, vlan uint32, frame []byte) error {
	return c.packetOut(portController, port, frame, PushVLAN{}, SetField{Field: VlanVID, Value: Uint(0x1000 | vlan)})
}

// InjectPacket makes the switch take a frame as if it had come by a port.
func (c *Conn) InjectPacket(port uint32, frame []byte) error {
	return c.packetOut(port, portTable, frame)
}

// InjectTunnelled makes the switch take a frame as if it had come by a tunnel's port.
func (c *Conn) InjectTunnelled(port, id uint32, src, dst netip.Addr, frame []byte) error {
	from, to := TunSrc, TunDst
	if !src.Is4() {
		from, to = TunIPv6Src, TunIPv6Dst
	}
	return c.packetOut(port, portTable, frame, Set(TunID, id), SetField{from, Addr(src)}, SetField{to, Addr(dst)})
}

// SendTunnelled makes the switch send a frame out of a tunnel's port.
func (c *Conn) SendTunnelled(port, id uint32, dst netip.Addr, frame []byte) error {
	to := TunDst
	if !dst.Is4() {
		to = TunIPv6Dst
	}
	return c.packetOut(portController, port, frame, Set(TunID, id), SetField{to, Addr(dst)})
}

// packetOut has the switch do actions with a frame that came by a port, and send it out
// of another.
func (c *Conn) packetOut(from, to uint32, frame []byte, first ...Action) error {
	b := appendMessage(nil, typePacketOut, 0)
	b = append(b, 0xff, 0xff, 0xff, 0xff) // no buffered packet
	b = binary.BigEndian.AppendUint32(b, from)
	at := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	begin := len(b)
	for _, a := range append(first, Output{to}) {
		b = a.appendWire(b)
	}
	binary.BigEndian.PutUint16(b[at:], uint16(len(b)-begin)) //nolint:gosec // four actions at most
	b = append(b, frame...)
	if len(b) > maxMessage {
		return fmt.Errorf("a frame of %d bytes does not fit into a message", len(frame))
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if _, err := c.c.Write(finish(b, 0)); err != nil {
		return fmt.Errorf("send to switch: %w", err)
	}
	return nil
}

// ReceiveUnbounded is ReceivePackets, but sets no bound.
func (c *Conn) ReceiveUnbounded(ctx context.Context, fn func(PacketIn)) error {
	c.packets.Store(&fn)
	err := c.exchangeTolerant(ctx, 2, func(xid uint32) ([]byte, error) {
		b := appendMessage(nil, typeSetConfig, xid)
		b = finish(append(b, 0, 0, 0xff, 0xff), 0) // whole packets
		return finish(appendMessage(b, typeBarrierReq, xid+1), len(b)), nil
	})
	if err != nil {
		return fmt.Errorf("ask the switch for packets: %w", err)
	}
	return nil
}

// LimitMeters makes sure of the meters that Controller actions name; each lets rate
// packets a second through. A meter that is there stays as it is.
func (c *Conn) LimitMeters(ctx context.Context, rate uint32, meters ...uint32) error {
	n := uint32(len(meters))
	var refusal error
	var barrier uint32
	err := c.exchange(ctx, n+1, func(xid uint32) (b []byte, _ error) {
		for i, m := range meters {
			b = appendMeterMod(b, xid+uint32(i), meterAdd, m, rate)
		}
		barrier = xid + n
		return finish(appendMessage(b, typeBarrierReq, barrier), len(b)), nil
	}, func(m reply) (bool, error) {
		if e, err := asError(m); refusal == nil && (err != nil || e != nil && (e.Type != errMeterMod || e.Code != errMeterExists)) {
			refusal = firstError(e, err)
		}
		return m.xid == barrier, nil
	})
	return errors.Join(err, refusal)
}

// StopPackets removes the bound that ReceivePackets set, and the meters of shares.
func (c *Conn) StopPackets(ctx context.Context, meters ...uint32) error {
	meters = append(meters, meterController)
	n := uint32(len(meters))
	return c.exchangeTolerant(ctx, n+1, func(xid uint32) (b []byte, _ error) {
		for i, m := range meters {
			b = appendMeterMod(b, xid+uint32(i), meterDelete, m, 0)
		}
		return finish(appendMessage(b, typeBarrierReq, xid+n), len(b)), nil
	})
}

// PacketCounts returns how many packets have met the bound and the shares since
// these were set, and how many packets these have cut. Where the switch forwards in
// user space, the packets that it let through before it answers have come here when
// PacketCounts returns, or never will.
func (c *Conn) PacketCounts(ctx context.Context, meters ...uint32) (met, cut uint64, err error) {
	err = c.multipart(ctx, "read meter", func(xid uint32) []byte {
		b := appendMultipart(nil, xid, multipartMeter)
		b = binary.BigEndian.AppendUint32(b, meterAll)
		return finish(append(b, 0, 0, 0, 0), 0)
	}, func(b []byte) error {
		for len(b) > 0 {
			n := 0
			if len(b) >= 56 {
				n = int(binary.BigEndian.Uint16(b[4:]))
			}
			if n < 56 || n > len(b) {
				return fmt.Errorf("meter counters cut short: %d bytes", len(b))
			}
			if m := binary.BigEndian.Uint32(b); m == meterController || slices.Contains(meters, m) {
				met += binary.BigEndian.Uint64(b[16:])
				cut += binary.BigEndian.Uint64(b[40:])
			}
			b = b[n:]
		}
		return nil
	})
	return met, cut, err
}

// exchangeTolerant sends n messages of which the last is a barrier, and returns the
// first refusal. Whatever answers the barrier is the last answer, its refusal too.
func (c *Conn) exchangeTolerant(ctx context.Context, n uint32, build func(xid uint32) ([]byte, error)) error {
	var refusal error
	var barrier uint32
	err := c.exchange(ctx, n, func(xid uint32) ([]byte, error) {
		barrier = xid + n - 1
		return build(xid)
	}, func(m reply) (bool, error) {
		if err := firstError(asError(m)); err != nil && refusal == nil {
			refusal = err
		}
		return m.xid == barrier, nil
	})
	if err != nil {
		return err
	}
	return refusal
}

func appendMeterMod(b []byte, xid uint32, command uint16, meter, rate uint32) []byte {
	start := len(b)
	b = appendMessage(b, typeMeterMod, xid)
	b = binary.BigEndian.AppendUint16(b, command)
	b = binary.BigEndian.AppendUint16(b, meterFlags)
	b = binary.BigEndian.AppendUint32(b, meter)
	if command != meterDelete {
		b = binary.BigEndian.AppendUint16(b, bandDrop)
		b = binary.BigEndian.AppendUint16(b, 16)
		b = binary.BigEndian.AppendUint32(b, rate)
		b = binary.BigEndian.AppendUint32(b, rate) // burst
		b = append(b, 0, 0, 0, 0)
	}
	return finish(b, start)
}
