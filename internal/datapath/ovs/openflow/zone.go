package openflow

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
)

const (
	typeExperimenter = 4
	nxFlushZone      = 29 // NXT_CT_FLUSH_ZONE, Open vSwitch 2.6 and later
	nxFlush          = 32 // NXT_CT_FLUSH, Open vSwitch 3.1 and later
)

// FlushZone makes connection tracking forget the connections of a zone.
func (c *Conn) FlushZone(ctx context.Context, zone uint16) error {
	err := c.exchangeTolerant(ctx, 2, func(xid uint32) ([]byte, error) {
		b := appendMessage(nil, typeExperimenter, xid)
		b = binary.BigEndian.AppendUint32(b, nxVendor)
		b = binary.BigEndian.AppendUint32(b, nxFlushZone)
		b = binary.BigEndian.AppendUint16(append(b, 0, 0, 0, 0, 0, 0), zone)
		b = finish(b, 0)
		return finish(appendMessage(b, typeBarrierReq, xid+1), len(b)), nil
	})
	if err != nil {
		return fmt.Errorf("flush zone %d of connection tracking: %w", zone, err)
	}
	return nil
}

// Connection names a connection of connection tracking: as its first packet was before
// all translation.
type Connection struct {
	Zone     uint16
	Proto    uint8
	Src, Dst netip.AddrPort
}

// flushesAtOnce is how many connections FlushTracked names before it waits.
const flushesAtOnce = 1000

// FlushTracked deletes connections from connection tracking; unknown ones are no failure.
// An error of type *Error means that the switch cannot.
func (c *Conn) FlushTracked(ctx context.Context, all []Connection) error {
	for len(all) > 0 {
		some := all[:min(len(all), flushesAtOnce)]
		all = all[len(some):]
		n := uint32(len(some))
		err := c.exchangeTolerant(ctx, n+1, func(xid uint32) (b []byte, _ error) {
			for i, t := range some {
				b = t.append(b, xid+uint32(i))
			}
			return finish(appendMessage(b, typeBarrierReq, xid+n), len(b)), nil
		})
		if err != nil {
			return fmt.Errorf("flush %d connections: %w", n, err)
		}
	}
	return nil
}

func (t Connection) append(b []byte, xid uint32) []byte {
	be, start := binary.BigEndian, len(b)
	b = appendMessage(b, typeExperimenter, xid)
	b = be.AppendUint32(b, nxVendor)
	b = be.AppendUint32(b, nxFlush)
	b = append(b, t.Proto, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, 0, 0, 0, 72, 0, 0, 0, 0) // the tuple of its first packet
	for i, end := range []netip.AddrPort{t.Src, t.Dst} {
		a := end.Addr().As16() // IPv4 as ::ffff:a.b.c.d
		b = append(appendHeader(b, i, 20), a[:]...)
		b = append(b, 0, 0, 0, 0)
	}
	for i, end := range []netip.AddrPort{t.Src, t.Dst} {
		b = append(be.AppendUint16(appendHeader(b, 2+i, 8), end.Port()), 0, 0)
	}
	b = append(be.AppendUint16(appendHeader(b, 2, 8), t.Zone), 0, 0)
	return finish(b, start)
}
