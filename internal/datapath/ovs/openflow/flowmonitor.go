package openflow

import (
	"context"
	"encoding/binary"
)

// Flow monitors (OpenFlow 1.4, section 7.3.5.18): the switch tells of flows that
// others change, in multipart replies with number 0, which no request has.
const (
	multipartFlowMonitor = 16

	watchRemoved, watchModified = 1 << 2, 1 << 3 // flags of a request

	flowRemoved, flowModified, flowsResumed = 2, 3, 6 // events; resumed: some were not told
)

// flowWatch is who wants to hear of changed flows.
type flowWatch struct {
	cookie, mask uint64
	changed      chan struct{}
}

// WatchFlows asks the switch to tell of flows that somebody else removes or changes
// and whose cookie, in the bits of mask, is cookie. What this connection changes
// itself is not told. The channel holds one word for any number of changes.
func (c *Conn) WatchFlows(ctx context.Context, cookie, mask uint64) (<-chan struct{}, error) {
	w := &flowWatch{cookie, mask, make(chan struct{}, 1)}
	c.flows.Store(w)
	err := c.multipart(ctx, "watch flows", func(xid uint32) []byte {
		b := appendMultipart(nil, xid, multipartFlowMonitor)
		b = binary.BigEndian.AppendUint32(b, 1)          // the monitor's number
		b = binary.BigEndian.AppendUint32(b, 0xffffffff) // any port
		b = binary.BigEndian.AppendUint32(b, 0xffffffff) // any group
		b = binary.BigEndian.AppendUint16(b, watchRemoved|watchModified)
		b = append(b, 0xff, 0)                // all tables; add
		b = append(b, 0, 1, 0, 4, 0, 0, 0, 0) // an empty match, padded
		return finish(b, 0)
	}, func([]byte) error { return nil })
	return w.changed, err
}

// notify takes a multipart reply without a request; it ignores all but a flow monitor's.
func (w *flowWatch) notify(m reply) {
	if w == nil || len(m.body) < 8 || binary.BigEndian.Uint16(m.body) != multipartFlowMonitor {
		return
	}
	for b := m.body[8:]; len(b) >= 4; {
		n, event := int(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint16(b[2:])
		if n < 4 || n > len(b) {
			return
		}
		ours := n >= 24 && binary.BigEndian.Uint64(b[16:])&w.mask == w.cookie
		if event == flowsResumed || ours && (event == flowRemoved || event == flowModified) {
			select {
			case w.changed <- struct{}{}:
			default:
			}
			return
		}
		b = b[n:]
	}
}
