package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ReadPacket decodes an IP frame that Frame made and a data plane may have
// translated or routed, as its receiver would: with all checksums verified. nil:
// it is not IP; an error: the receiver would throw it away.
func ReadPacket(f []byte) (*reference.Packet, error) {
	read := readIP
	switch {
	case len(f) >= 34 && f[12] == 8 && f[13] == 0:
	case len(f) >= 54 && f[12] == 0x86 && f[13] == 0xdd:
		read = readIP6
	default:
		return nil, nil
	}
	p, err := read(f[14:], false)
	if err != nil {
		return nil, fmt.Errorf("frame %x: %w", f, err)
	}
	p.DstMAC, p.SrcMAC = model.MAC(f[0:6]), model.MAC(f[6:12])
	return p, nil
}

// readIP decodes an IPv4 packet. A quoted packet may be truncated, and has the transport
// checksum from before the translation.
func readIP(b []byte, quoted bool) (*reference.Packet, error) {
	be := binary.BigEndian
	if len(b) < 20 {
		return nil, errors.New("IPv4 header is cut short")
	}
	hl := int(b[0]&15) * 4
	if b[0]>>4 != 4 || hl < 20 || len(b) < hl || checksum(0, b[:hl]) != 0xffff {
		return nil, fmt.Errorf("IPv4 header is damaged (sum %#x)", checksum(0, b[:min(max(hl, 20), len(b))]))
	}
	if n := int(be.Uint16(b[2:])); n <= len(b) {
		b = b[:n] // padding of a short frame
	}
	p := &reference.Packet{
		Src: netip.AddrFrom4([4]byte(b[12:16])), Dst: netip.AddrFrom4([4]byte(b[16:20])), Proto: model.Protocol(b[9]), TTL: b[8],
	}
	if v := be.Uint16(b[6:]); v&0x3fff != 0 {
		p.Frag = &reference.Fragment{ID: uint32(be.Uint16(b[4:])), Offset: v & 0x1fff * 8, More: v&0x2000 != 0}
		if p.Frag.Offset != 0 {
			return p, nil
		}
	}
	return p, readTransport(p, b[hl:], quoted)
}

// readIP6 is readIP for IPv6, which may have a fragment header.
func readIP6(b []byte, quoted bool) (*reference.Packet, error) {
	be := binary.BigEndian
	if len(b) < 40 || b[0]>>4 != 6 {
		return nil, errors.New("IPv6 header is damaged")
	}
	if n := 40 + int(be.Uint16(b[4:])); n <= len(b) {
		b = b[:n]
	}
	p := &reference.Packet{
		Src: netip.AddrFrom16([16]byte(b[8:24])), Dst: netip.AddrFrom16([16]byte(b[24:40])), Proto: model.Protocol(b[6]), TTL: b[7],
	}
	b = b[40:]
	if p.Proto == 60 && len(b) >= 8 && b[1] == 0 { // destination options
		p.Proto, b = model.Protocol(b[0]), b[8:]
	}
	if p.Proto == 44 && len(b) >= 8 {
		p.Proto = model.Protocol(b[0])
		v := be.Uint16(b[2:])
		p.Frag = &reference.Fragment{ID: be.Uint32(b[4:]), Offset: v &^ 7, More: v&1 != 0}
		if b = b[8:]; p.Frag.Offset != 0 {
			return p, nil
		}
	}
	return p, readTransport(p, b, quoted)
}

// readTransport decodes what follows a packet's IP header.
func readTransport(p *reference.Packet, b []byte, quoted bool) error {
	be := binary.BigEndian
	if len(b) < 8 {
		return nil
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
		if sum = checksum(pseudo(*p, n), b); p.Proto == model.ProtoUDP && p.Src.Is4() && be.Uint16(b[6:]) == 0 {
			sum = 0xffff // there is none (RFC 768)
		}
	case model.ProtoSCTP:
		p.SrcPort, p.DstPort = be.Uint16(b), be.Uint16(b[2:])
	case model.AnyProtocol: // not in a packet
	case model.ProtoICMP, model.ProtoICMPv6:
		p.ICMPType, p.ICMPCode = b[0], b[1]
		read, isError := readIP6, p.ICMPType < 128
		if sum = checksum(pseudo(*p, len(b)), b); p.Proto == model.ProtoICMP {
			sum = checksum(0, b)
			read, isError = readIP, slices.Contains([]uint8{3, 4, 5, 11, 12}, p.ICMPType)
		}
		if !isError {
			p.ICMPID = be.Uint16(b[4:])
			break
		}
		inner, err := read(b[8:], true)
		if err != nil {
			return fmt.Errorf("quoted: %w", err)
		}
		p.Inner = inner
	}
	if sum != 0xffff && !quoted {
		return fmt.Errorf("transport checksum is wrong (sum %#x)", sum)
	}
	return nil
}

// sentText is what is compared of a translated packet.
func sentText(p *reference.Packet) string {
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

// routedText is what is compared of a packet that was routed.
func routedText(p *reference.Packet) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("from %s ttl %d %s", p.SrcMAC, p.Hops(), sentText(p))
}

// answerText is what is compared of an answer to a packet's sender: ARP, neighbour discovery,
// an ICMP error or a reset.
func answerText(p *reference.Packet) string {
	switch {
	case p == nil:
		return ""
	case p.ARP != nil:
		return fmt.Sprintf("from %s to %s %+v", p.SrcMAC, p.DstMAC, *p.ARP)
	case p.ND != nil:
		return fmt.Sprintf("from %s: %s has %s", p.SrcMAC, p.Src, p.ND.Target) // without a link-layer address, if the question has none
	}
	return fmt.Sprintf("from %s %s", p.SrcMAC, sentText(p))
}
