package openflow

import (
	"context"
	"encoding/binary"
	"fmt"
)

const (
	typeExperimenter = 4
	nxFlushZone      = 29 // NXT_CT_FLUSH_ZONE, Open vSwitch 2.6 and later
)

// FlushZone makes connection tracking forget the connections of a zone.
func (c *Conn) FlushZone(ctx context.Context, zone uint16) error {
	err := c.refusable(ctx, 2, func(xid uint32) ([]byte, error) {
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
