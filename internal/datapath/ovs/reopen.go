package ovs

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// listInterval bounds how often connections are listed for packets whose source is not
// checked.
const listInterval = time.Second

// deleteClosedConnection forgets the connection that a request, or an answer to one, does not fit. An end
// that sends such a segment has none of these addresses and ports, so what tracking knows
// is out of date. Sources outside may be forged: they reopen what is closing, and do not end
// what is established (RFC 5961 section 4).
func (a *responder) deleteClosedConnection(ctx context.Context, conn *openflow.Conn, p openflow.PacketIn) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	f := p.Frame
	h, ok := headersOf(f)
	if !ok || h.proto != model.ProtoTCP || p.Register(openflow.CtMark) == 0 {
		return // all that are tracked have a mark
	}
	zone := zoneOf(desired.Domain(p.Register(pipeline.RegDomain)))
	if pipeline.IsServiceTable(p.Table) {
		zone = uint16(p.Register(pipeline.RegZone)) //nolint:gosec // 16 bits wide
	}
	be := binary.BigEndian
	c := connection{proto: h.proto, orig: tuple{h.src, h.dst, be.Uint16(f[h.at:]), be.Uint16(f[h.at+2:])}}
	origin := p.Register(pipeline.RegOrigin)
	if !pipeline.IsSourceChecked(origin) && !a.isClosing(ctx, c, zone) {
		return
	}
	if err := a.daemon.flushTracked(ctx, c.tracked(zone)); err != nil {
		a.cfg.Log.Debug("a connection cannot be opened again by the same ports", "client", h.src, "server", h.dst, "error", err)
		return
	}
	request := f[h.at+13]&tcpACK == 0
	translated := pipeline.IsService(p.Register(pipeline.RegService)) && !pipeline.IsServiceTable(p.Table)
	if request && !translated && pipeline.FromPort(origin) && len(f) >= h.end {
		_ = conn.InjectPacket(p.Register(openflow.InPort), f) // else its sender sends it again
	}
}

// isClosing reports whether the switch tracks a connection that is not established. It
// costs the switch a look at all connections, and reports false while that is too much.
func (a *responder) isClosing(ctx context.Context, c connection, zone uint16) bool {
	if time.Since(a.listed) < listInterval {
		return false
	}
	a.listed = time.Now()
	if full, err := a.daemon.conntrack(ctx); err != nil || full.Entries > a.daemon.listable {
		return false
	}
	text, err := control(ctx, a.cfg.RunDir, "dpctl/dump-conntrack", a.daemon.datapath(), fmt.Sprint("zone=", zone))
	if err != nil {
		return false
	}
	back := tuple{c.orig.dst, c.orig.src, c.orig.dport, c.orig.sport}
	for line := range strings.Lines(text) {
		if x, ok := readConnection(line); ok && x.proto == c.proto && (x.orig == c.orig || x.orig == back) {
			return !strings.Contains(line, "state=ESTABLISHED")
		}
	}
	return false
}
