package conformance

import (
	"encoding/binary"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Frame serializes a packet as an Ethernet frame with right checksums.
func Frame(p reference.Packet) []byte {
	b := append(append([]byte{}, p.DstMAC[:]...), p.SrcMAC[:]...)
	if a := p.ARP; a != nil {
		b = append(b, 0x08, 0x06, 0, 1, 8, 0, 6, 4)
		b = binary.BigEndian.AppendUint16(b, a.Op)
		b = append(append(b, a.SenderMAC[:]...), a.SenderIP.AsSlice()...)
		return append(append(b, a.TargetMAC[:]...), a.TargetIP.AsSlice()...)
	}
	if p.Src.Is4() {
		b = append(b, 0x08, 0x00)
	} else {
		b = append(b, 0x86, 0xdd)
	}
	b = append(b, ipPacket(p)...)
	if p.Form == reference.Padded {
		return append(b, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa)
	}
	return damage(b, p)
}

// damage breaks a frame of plain form; the checksum of an IPv4 header is right after it, unless
// it is that.
func damage(f []byte, p reference.Packet) []byte {
	be, l4, ttl := binary.BigEndian, 34, 22
	if p.Src.Is6() {
		if l4, ttl = 54, 21; p.Frag != nil {
			l4 += 8
		}
	}
	switch p.Damage {
	case reference.Intact:
		return f
	case reference.UDPTooLong:
		be.PutUint16(f[l4+4:], 9999)
	case reference.UDPLengthZero:
		be.PutUint16(f[l4+4:], 0)
	case reference.TCPBeyond:
		f[l4+12] = 0xf0
	case reference.TCPInside:
		f[l4+12] = 0x40
	case reference.NoHopsLeft:
		f[ttl] = 0
	case reference.ReservedFlag:
		f[20] |= 0x80
	case reference.CutShort:
		return f[:len(f)-5]
	case reference.WrongChecksum:
		f[25] ^= 0xff
		return f
	}
	if p.Src.Is4() {
		be.PutUint16(f[24:], 0)
		be.PutUint16(f[24:], ^checksum(0, f[14:34]))
	}
	return f
}

// Tagged puts an 802.1Q tag on a frame.
func Tagged(f []byte, vlan uint32) []byte {
	b := append([]byte{}, f[:12]...)
	b = append(b, 0x81, 0x00, byte(vlan>>8), byte(vlan))
	return append(b, f[12:]...)
}

func ipPacket(p reference.Packet) []byte {
	pay := payload(p)
	more, offset := uint16(0), uint16(0)
	if p.Frag != nil {
		if offset = p.Frag.Offset / 8; p.Frag.More {
			more = 1
		}
	}
	if p.Src.Is4() {
		h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, p.Hops(), byte(p.Proto), 0, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(pay)))
		if p.Frag != nil {
			binary.BigEndian.PutUint16(h[4:], uint16(p.Frag.ID))
			binary.BigEndian.PutUint16(h[6:], more<<13|offset)
		}
		h = append(append(h, p.Src.AsSlice()...), p.Dst.AsSlice()...)
		if p.Form == reference.Options {
			h = append(h, 1, 1, 1, 1) // no operation (RFC 791)
			h[0]++
			binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(pay)))
		}
		binary.BigEndian.PutUint16(h[10:], ^checksum(0, h))
		return append(h, pay...)
	}
	next, ext := byte(p.Proto), []byte(nil)
	if p.Frag != nil {
		ext = []byte{next, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(ext[2:], offset<<3|more)
		binary.BigEndian.PutUint32(ext[4:], p.Frag.ID)
		next = 44
	}
	if p.Form == reference.Options {
		ext = append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, ext...) // PadN (RFC 8200 section 4.2)
		next = 60
	}
	hops := p.Hops()
	if p.Proto == model.ProtoICMPv6 && p.ICMPType >= reference.NDRouterSolicit && p.ICMPType <= reference.NDRedirect {
		hops = 255 // receivers drop other values (RFC 4861 section 7.1)
	}
	h := []byte{0x60, 0, 0, 0, 0, 0, next, hops}
	binary.BigEndian.PutUint16(h[4:], uint16(len(ext)+len(pay)))
	h = append(append(h, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	return append(append(h, ext...), pay...)
}

func checksum(start uint32, b []byte) uint16 {
	s := start
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func pseudo(p reference.Packet, n int) uint32 {
	b := append(append([]byte{}, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	return uint32(checksum(0, b)) + uint32(p.Proto) + uint32(n)
}

func payload(p reference.Packet) []byte {
	if p.Frag != nil && p.Frag.Offset != 0 {
		return make([]byte, 64)
	}
	be := binary.BigEndian
	least := 20
	if p.Frag != nil {
		least = 24 // all fragments but the last are of whole eights of bytes
	}
	switch p.Proto {
	case model.ProtoTCP:
		b := make([]byte, least)
		be.PutUint16(b, p.SrcPort)
		be.PutUint16(b[2:], p.DstPort)
		be.PutUint32(b[4:], 1001)
		if p.TCPFlags&reference.FlagSYN != 0 {
			be.PutUint32(b[4:], 1000)
		}
		be.PutUint32(b[8:], 1001)
		b[12], b[13] = 0x50, p.TCPFlags
		be.PutUint16(b[14:], 0xffff)
		be.PutUint16(b[16:], ^checksum(pseudo(p, len(b)), b))
		return b
	case model.ProtoUDP:
		b := make([]byte, 24)
		total := len(b)
		if p.Frag != nil {
			b = make([]byte, 1400)
			total = 1400 + 64
		}
		be.PutUint16(b, p.SrcPort)
		be.PutUint16(b[2:], p.DstPort)
		be.PutUint16(b[4:], uint16(total))
		if p.Form != reference.Unsummed || p.Src.Is6() {
			be.PutUint16(b[6:], ^checksum(pseudo(p, total), b)) // the rest is zeros
		}
		return b
	case model.ProtoSCTP:
		b := make([]byte, 32) // an INIT with a checksum that is not verified here
		be.PutUint16(b, p.SrcPort)
		be.PutUint16(b[2:], p.DstPort)
		b[12], b[15] = 1, 20
		return b
	case model.ProtoICMP:
		b := []byte{p.ICMPType, p.ICMPCode, 0, 0, byte(p.ICMPID >> 8), byte(p.ICMPID), 0, 1}
		if p.Inner != nil {
			b[4], b[5], b[7] = 0, 0, 0
			b = append(b, ipPacket(*p.Inner)...)
		}
		be.PutUint16(b[2:], ^checksum(0, b))
		return b
	case model.ProtoICMPv6:
		b := []byte{p.ICMPType, p.ICMPCode, 0, 0, byte(p.ICMPID >> 8), byte(p.ICMPID), 0, 1}
		switch {
		case p.ND != nil:
			b = append([]byte{p.ICMPType, 0, 0, 0, 0, 0, 0, 0}, p.ND.Target.AsSlice()...)
			if p.ND.HasLink {
				opt := byte(1)
				if p.ICMPType == reference.NDNeighborAdvert {
					opt = 2
				}
				b = append(append(b, opt, 1), p.ND.LinkAddr[:]...)
				if p.ND.Second != (model.MAC{}) {
					b = append(append(b, opt, 1), p.ND.Second[:]...)
				}
			}
		case p.Inner != nil:
			b = append([]byte{p.ICMPType, p.ICMPCode, 0, 0, 0, 0, 0, 0}, ipPacket(*p.Inner)...)
		case p.ICMPType == reference.NDRouterAdvert:
			b = append(b, make([]byte, 8)...)
		}
		be.PutUint16(b[2:], ^checksum(pseudo(p, len(b)), b))
		return b
	default:
		return make([]byte, least)
	}
}

// VXLAN wraps a frame for the tunnel (RFC 7348 section 5).
func VXLAN(outerDst, outerSrc model.MAC, src, dst netip.Addr, port uint16, vni uint32, f []byte) []byte {
	body := append([]byte{8, 0, 0, 0, byte(vni >> 16), byte(vni >> 8), byte(vni), 0}, f...)
	u := make([]byte, 8)
	binary.BigEndian.PutUint16(u, 50000)
	binary.BigEndian.PutUint16(u[2:], port)
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(body)))
	u = append(u, body...)
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0}
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(u)))
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(h[10:], ^checksum(0, h))
	b := append(append([]byte{}, outerDst[:]...), outerSrc[:]...)
	b = append(b, 0x08, 0x00)
	return append(append(b, h...), u...)
}

// Unwrap reads the destination and key of a frame of the tunnel on a UDP port,
// and the frame inside.
func Unwrap(f []byte, port uint16) (dst netip.Addr, vni uint32, inner []byte, ok bool) {
	if len(f) < 50 || f[12] != 8 || f[13] != 0 || f[23] != 17 || binary.BigEndian.Uint16(f[36:]) != port {
		return
	}
	return netip.AddrFrom4([4]byte(f[30:34])), binary.BigEndian.Uint32(f[46:]) >> 8, f[50:], true
}

// AnswerTo is ReadAnswer of a frame that came back to the sender of p. An ICMP error never
// answers an ICMP error, nor a reset a reset: such a frame is a packet that its sender sent
// to itself by a service.
func AnswerTo(p reference.Packet, f []byte) *reference.Packet {
	a := ReadAnswer(f)
	if a != nil && (p.Inner != nil && a.Inner != nil || p.TCPFlags&a.TCPFlags&reference.FlagRST != 0) {
		return nil
	}
	return a
}

// ReadAnswer decodes an ARP reply, a neighbour advertisement or an ICMP error, with
// which a host answers its container.
func ReadAnswer(f []byte) *reference.Packet {
	if len(f) < 42 {
		return nil
	}
	if p, err := ReadPacket(f); err == nil && p != nil && (p.Inner != nil || p.Proto == model.ProtoTCP && p.TCPFlags&reference.FlagRST != 0) {
		return p
	}
	p := &reference.Packet{DstMAC: model.MAC(f[0:6]), SrcMAC: model.MAC(f[6:12])}
	switch {
	case f[12] == 8 && f[13] == 6 && f[21] == 2:
		p.ARP = &reference.ARP{
			Op: 2, SenderMAC: model.MAC(f[22:28]), SenderIP: netip.AddrFrom4([4]byte(f[28:32])),
			TargetMAC: model.MAC(f[32:38]), TargetIP: netip.AddrFrom4([4]byte(f[38:42])),
		}
		return p
	case f[12] == 0x86 && f[13] == 0xdd && len(f) >= 78 && f[20] == 58 && f[54] == reference.NDNeighborAdvert:
		p.Src, p.Dst = netip.AddrFrom16([16]byte(f[22:38])), netip.AddrFrom16([16]byte(f[38:54]))
		p.Proto, p.ICMPType = model.ProtoICMPv6, f[54]
		p.ND = &reference.ND{Target: netip.AddrFrom16([16]byte(f[62:78]))}
		if len(f) >= 86 && f[78] == 2 {
			p.ND.HasLink, p.ND.LinkAddr = true, model.MAC(f[80:86])
		}
		// A receiver would check it, so the switch must have updated it.
		if checksum(pseudo(*p, len(f)-54), f[54:]) != 0xffff {
			return nil
		}
		return p
	}
	return nil
}
