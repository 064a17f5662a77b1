package ovs

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// What the driver does about packets to services that flows have sent up.

// Flags of TCP (RFC 9293 section 3.1), and the length of its header without options.
const (
	tcpFIN, tcpSYN, tcpRST, tcpACK = 1, 2, 4, 16

	tcpLen = 20
)

// headers are where a frame's addresses and its transport's header are.
type headers struct {
	src, dst netip.Addr
	at       int // of the transport's header
	proto    model.Protocol
	end      int // of the packet, as its header says
}

// headersOf reads a frame; ok is false when it is cut short or a later fragment.
func headersOf(f []byte) (h headers, ok bool) {
	be := binary.BigEndian
	if len(f) < ethernetLen+ipv4Len {
		return h, false
	}
	b := f[ethernetLen:]
	switch be.Uint16(f[12:]) {
	case 0x0800:
		head := int(b[0]&15) * 4
		if b[0]>>4 != 4 || head < ipv4Len || head > len(b) || be.Uint16(b[6:])&0x1fff != 0 {
			return h, false
		}
		h = headers{
			netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), ethernetLen + head, model.Protocol(b[9]),
			ethernetLen + int(be.Uint16(b[2:])),
		}
	case 0x86dd:
		if len(b) < ipv6Len || b[0]>>4 != 6 {
			return h, false
		}
		proto, carried, later := transport6(b)
		if later || carried == nil {
			return h, false
		}
		h = headers{
			netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), len(f) - len(carried), proto,
			ethernetLen + ipv6Len + int(be.Uint16(b[4:])),
		}
	default:
		return h, false
	}
	need := 8
	if h.proto == model.ProtoTCP {
		need = tcpLen
	}
	return h, len(f) >= h.at+need
}

// refuseService makes the frame that refuses a client's connection, nil if the packet gets
// no answer.
func refuseService(f []byte) []byte {
	h, ok := headersOf(f)
	switch {
	case !ok:
		return nil
	case h.proto == model.ProtoTCP:
		return reset(f, h)
	case h.src.Is6():
		return icmpErrorFrom(h.dst, h.src, model.MAC(f[6:12]), [2]uint8{1, 4}, 0, f[ethernetLen:min(len(f), h.end)])
	}
	return icmpErrorFrom(h.dst, h.src, model.MAC(f[6:12]), [2]uint8{3, 3}, 0, f[ethernetLen:min(len(f), h.end)])
}

// reset makes the answer to a segment for no connection (RFC 9293 section 3.10.7.1).
func reset(f []byte, h headers) []byte {
	be, t := binary.BigEndian, f[h.at:]
	flags, size := t[13], h.end-h.at-int(t[12]>>4)*4
	var seq, ack uint32
	answer := byte(tcpRST)
	if flags&tcpACK != 0 {
		seq = be.Uint32(t[8:])
	} else {
		if flags&tcpSYN != 0 {
			size++
		}
		if flags&tcpFIN != 0 {
			size++
		}
		ack, answer = be.Uint32(t[4:])+uint32(max(size, 0)), tcpRST|tcpACK //nolint:gosec // a packet's length
	}
	b := make([]byte, tcpLen)
	copy(b[0:], t[2:4])
	copy(b[2:], t[0:2])
	be.PutUint32(b[4:], seq)
	be.PutUint32(b[8:], ack)
	b[12], b[13] = tcpLen/4<<4, answer
	be.PutUint16(b[16:], transportSum(h.dst, h.src, model.ProtoTCP, b))
	mac := model.MAC(f[6:12])
	if h.src.Is4() {
		out := append(ethernet(mac, 0x0800), 0x45, 0, 0, ipv4Len+tcpLen, 0, 0, 0x40, 0, 64, byte(model.ProtoTCP), 0, 0)
		out = append(append(out, h.dst.AsSlice()...), h.src.AsSlice()...)
		be.PutUint16(out[ethernetLen+10:], ^checksum.Sum(0, out[ethernetLen:]))
		return append(out, b...)
	}
	out := append(ethernet(mac, 0x86dd), 0x60, 0, 0, 0, 0, tcpLen, byte(model.ProtoTCP), 64)
	return append(append(append(out, h.dst.AsSlice()...), h.src.AsSlice()...), b...)
}

// transportSum is the checksum of a whole segment or datagram whose own is 0.
func transportSum(src, dst netip.Addr, proto model.Protocol, b []byte) uint16 {
	return ^checksum.Upper(byte(proto), append(src.AsSlice(), dst.AsSlice()...), b)
}

// untranslated puts a translated packet of a client's back as the client has sent it, as
// tracking recorded it; the transport's checksum is left alone.
func untranslated(p openflow.PacketIn) bool {
	h, ok := headersOf(p.Frame)
	if !ok {
		return false
	}
	f, b := p.Frame, p.Frame[ethernetLen:]
	src, dst, at := openflow.CtNwSrc, openflow.CtNwDst, 12
	if h.src.Is6() {
		src, dst, at = openflow.CtIPv6Src, openflow.CtIPv6Dst, 8
	}
	from, to := p.Addr(src), p.Addr(dst)
	if !from.IsValid() || !to.IsValid() {
		return false
	}
	copy(b[at:], append(from.AsSlice(), to.AsSlice()...))
	if h.src.Is4() {
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], ^checksum.Sum(0, b[:h.at-ethernetLen]))
	}
	if h.proto.HasPorts() {
		binary.BigEndian.PutUint16(f[h.at:], uint16(p.Register(openflow.CtTpSrc)))   //nolint:gosec // 16 bits wide
		binary.BigEndian.PutUint16(f[h.at+2:], uint16(p.Register(openflow.CtTpDst))) //nolint:gosec // likewise
	}
	return true
}

// retryTimeout bounds how long the switch may take to forget a translation.
const retryTimeout = time.Second

// begin treats a client's packet as a new connection: it deletes the translation, whose
// backend accepts no new ones, and gives the packet to the switch once more.
func (a *responder) begin(ctx context.Context, conn *openflow.Conn, p openflow.PacketIn) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	f := p.Frame
	behind, ok := headersOf(f)
	if !ok || behind.proto != model.ProtoTCP || len(f) < behind.end {
		return
	}
	be := binary.BigEndian
	c := connection{proto: behind.proto}
	c.reply = tuple{src: behind.dst, dst: behind.src, sport: be.Uint16(f[behind.at+2:]), dport: be.Uint16(f[behind.at:])}
	if !untranslated(p) {
		return
	}
	front, _ := headersOf(f)
	c.orig = tuple{front.src, front.dst, be.Uint16(f[front.at:]), be.Uint16(f[front.at+2:])}
	segment := f[front.at:front.end]
	segment[16], segment[17] = 0, 0
	be.PutUint16(segment[16:], transportSum(front.src, front.dst, front.proto, segment))
	zone, policy := uint16(p.Register(pipeline.RegZone)), zoneOf(desired.Domain(p.Register(pipeline.RegDomain))) //nolint:gosec // 16 bits wide
	if err := a.daemon.flushTracked(ctx, c.tracked(zone)); err != nil {                                          // it would come up again and again
		a.cfg.Log.Debug("a client's connection cannot be reopened from the same port", "service", front.dst, "error", err)
		return
	}
	_ = a.daemon.flushTracked(ctx, connection{proto: c.proto, orig: c.judgedTuple()}.tracked(policy)) // policy may not have let it through
	_ = conn.InjectPacket(p.Register(openflow.InPort), f)                                             // else its sender sends it again
}
