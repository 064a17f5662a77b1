package drivertest

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/oracle"
)

// ReadPacket decodes an IPv4 frame that Frame made and a data plane may have
// translated, as its receiver would: with all checksums verified. nil: it is
// not IPv4; an error: the receiver would throw it away.
func ReadPacket(f []byte) (*oracle.Packet, error) {
	if len(f) < 34 || f[12] != 8 || f[13] != 0 {
		return nil, nil
	}
	p, err := readIP(f[14:], false)
	if err != nil {
		return nil, fmt.Errorf("frame %x: %w", f, err)
	}
	p.DstMAC, p.SrcMAC = model.MAC(f[0:6]), model.MAC(f[6:12])
	return p, nil
}

// readIP decodes a packet; a quoted one may be cut short, and its transport
// checksum is that of before the translation.
func readIP(b []byte, quoted bool) (*oracle.Packet, error) {
	be := binary.BigEndian
	if len(b) < 20 || b[0] != 0x45 || checksum(0, b[:20]) != 0xffff {
		return nil, fmt.Errorf("IPv4 header is damaged (sum %#x)", checksum(0, b[:min(20, len(b))]))
	}
	if n := int(be.Uint16(b[2:])); n <= len(b) {
		b = b[:n] // padding of a short frame
	}
	p := &oracle.Packet{
		Src: netip.AddrFrom4([4]byte(b[12:16])), Dst: netip.AddrFrom4([4]byte(b[16:20])), Proto: model.Protocol(b[9]),
	}
	if v := be.Uint16(b[6:]); v&0x3fff != 0 {
		p.Frag = &oracle.Fragment{ID: uint32(be.Uint16(b[4:])), Offset: v & 0x1fff * 8, More: v&0x2000 != 0}
		if p.Frag.Offset != 0 {
			return p, nil
		}
	}
	b = b[20:]
	if len(b) < 8 {
		return p, nil
	}
	sum := uint16(0xffff)
	switch p.Proto {
	case model.ProtoTCP, model.ProtoUDP:
		p.SrcPort, p.DstPort = be.Uint16(b), be.Uint16(b[2:])
		n := len(b)
		if p.Proto == model.ProtoUDP {
			n = int(be.Uint16(b[4:])) // of the whole datagram; what is in later fragments is zeros here
		} else if len(b) > 13 {
			p.TCPFlags = b[13]
		}
		sum = checksum(pseudo(*p, n), b)
	case model.ProtoSCTP:
		p.SrcPort, p.DstPort = be.Uint16(b), be.Uint16(b[2:])
	case model.AnyProtocol, model.ProtoICMPv6: // not in IPv4
	case model.ProtoICMP:
		p.ICMPType, p.ICMPCode = b[0], b[1]
		sum = checksum(0, b)
		switch p.ICMPType {
		case 3, 4, 5, 11, 12:
			inner, err := readIP(b[8:], true)
			if err != nil {
				return nil, fmt.Errorf("quoted: %w", err)
			}
			p.Inner = inner
		default:
			p.ICMPID = be.Uint16(b[4:])
		}
	}
	if sum != 0xffff && !quoted {
		return nil, fmt.Errorf("transport checksum is wrong (sum %#x)", sum)
	}
	return p, nil
}

// sentText is what is compared of a translated packet.
func sentText(p *oracle.Packet) string {
	if p == nil {
		return ""
	}
	s := fmt.Sprintf("to %s: %s:%d > %s:%d proto %d icmp %d/%d id %d flags %#x", p.DstMAC, p.Src, p.SrcPort, p.Dst, p.DstPort,
		p.Proto, p.ICMPType, p.ICMPCode, p.ICMPID, p.TCPFlags)
	if p.Frag != nil {
		s += fmt.Sprintf(" fragment %+v", *p.Frag)
	}
	if q := p.Inner; q != nil {
		s += fmt.Sprintf(" about %s:%d > %s:%d proto %d", q.Src, q.SrcPort, q.Dst, q.DstPort, q.Proto)
	}
	return s
}
