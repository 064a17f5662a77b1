package ovs

import (
	"encoding/binary"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Sizes in bytes.
const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	icmpLen     = 8
	maxError4   = 576  // of an IPv4 packet with an error (RFC 1812 section 4.3.2.3)
	maxError6   = 1280 // likewise of IPv6 (RFC 4443 section 2.4)
	solicitLen  = ethernetLen + ipv6Len + 24
)

// routerError makes the frame by which a network's router tells the sender of frame f
// what became of f, with the tunnel's MTU where it is too big; nil when the router may not tell (docs/design/routing.md).
func routerError(n *desired.Network, r pipeline.Refusal, mtu uint16, f []byte) []byte {
	if len(f) < ethernetLen+ipv4Len {
		return nil
	}
	var src, dst, router netip.Addr
	var carried []byte
	var proto model.Protocol
	what, b, size := r.V4, f[ethernetLen:], 0
	switch binary.BigEndian.Uint16(f[12:]) {
	case 0x0800:
		head := int(b[0]&15) * 4
		if b[0]>>4 != 4 || head < ipv4Len || head > len(b) || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return nil
		}
		src, dst, router = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:])), n.Router()
		proto, carried, size = model.Protocol(b[9]), b[head:], int(binary.BigEndian.Uint16(b[2:]))
	case 0x86dd:
		if len(b) < ipv6Len || b[0]>>4 != 6 {
			return nil
		}
		var later bool
		if proto, carried, later = transport6(b); later || carried == nil {
			return nil
		}
		what = r.V6
		src, dst, router = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])), n.Router6()
		size = ipv6Len + int(binary.BigEndian.Uint16(b[4:]))
	default:
		return nil
	}
	if !n.Contains(src) || !isUnicast(dst) || !router.IsValid() && !r.TooBig || isError(proto, carried) {
		return nil
	}
	if h, whole := headersOf(f); whole && !wellFormed(f, h) || !whole && proto.HasPorts() {
		return nil
	}
	if !r.TooBig {
		return icmpErrorFrom(router, src, model.MAC(f[6:12]), what, 0, b[:min(len(b), size)])
	}
	return icmpErrorFrom(dst, src, model.MAC(f[6:12]), what, mtu, b[:min(len(b), size)])
}

// isError reports whether ICMP is an error, or may be one (RFC 4443 section 2.1).
func isError(proto model.Protocol, b []byte) bool {
	switch proto {
	case model.ProtoICMP:
		return len(b) == 0 || b[0] == 3 || b[0] == 4 || b[0] == 5 || b[0] == 11 || b[0] == 12
	case model.ProtoICMPv6:
		return len(b) == 0 || b[0] < 128
	default:
		return false
	}
}

// isUnicast reports whether an address can be a single machine's (RFC 1122 section
// 3.2.2, RFC 4443 section 2.4).
func isUnicast(a netip.Addr) bool {
	if a.Is4() && (a.As4()[0] == 0 || a.As4()[0] >= 240) {
		return false
	}
	return !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast()
}

// icmpErrorFrom makes an ICMP error about a packet (RFC 792, RFC 4443), with the size that
// fits where it is about that (RFC 1191 section 4), else 0.
func icmpErrorFrom(router, to netip.Addr, mac model.MAC, what [2]uint8, mtu uint16, about []byte) []byte {
	be := binary.BigEndian
	if to.Is4() {
		about = about[:min(len(about), maxError4-ipv4Len-icmpLen)]
		f := ethernet(mac, 0x0800)
		f = append(f, 0x45, 0xc0) // of precedence 6 (RFC 1812 section 4.3.2.5)
		f = be.AppendUint16(f, uint16(ipv4Len+icmpLen+len(about)))
		f = append(f, 0, 0, 0, 0, 64, byte(model.ProtoICMP), 0, 0)
		f = append(append(f, router.AsSlice()...), to.AsSlice()...)
		be.PutUint16(f[ethernetLen+10:], ^checksum.Sum(0, f[ethernetLen:]))
		f = append(be.AppendUint16(append(f, what[0], what[1], 0, 0, 0, 0), mtu), about...)
		icmp := f[ethernetLen+ipv4Len:]
		be.PutUint16(icmp[2:], ^checksum.Sum(0, icmp))
		return f
	}
	about = about[:min(len(about), maxError6-ipv6Len-icmpLen)]
	return icmp6(mac, router, to, 64, append(be.AppendUint16([]byte{what[0], what[1], 0, 0, 0, 0}, mtu), about...))
}

// advertise makes the router's answer to a question for its link address. Flows have
// checked the question.
func advertise(f []byte) []byte {
	if len(f) < solicitLen {
		return nil
	}
	to, flags := netip.AddrFrom16([16]byte(f[22:])), byte(0x60) // solicited and override (RFC 4861 section 4.4)
	if to.IsUnspecified() {
		to, flags = netip.IPv6LinkLocalAllNodes(), 0x20
	}
	target := netip.AddrFrom16([16]byte(f[62:]))
	body := append([]byte{136, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice()...)
	body = append(append(body, 2, 1), desired.RouterMAC[:]...) // target link-layer address
	return icmp6(model.MAC(f[6:12]), target, to, 255, body)
}

func icmp6(mac model.MAC, from, to netip.Addr, hops uint8, body []byte) []byte {
	f := append(ethernet(mac, 0x86dd), 0x60, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(len(body)))
	f = append(f, byte(model.ProtoICMPv6), hops)
	f = append(append(f, from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(body[2:], ^checksum.Upper(byte(model.ProtoICMPv6), f[ethernetLen+8:], body))
	return append(f, body...)
}

// ethernet begins a frame from the router.
func ethernet(to model.MAC, typ uint16) []byte {
	f := append(append(make([]byte, 0, ethernetLen+maxError6), to[:]...), desired.RouterMAC[:]...)
	return binary.BigEndian.AppendUint16(f, typ)
}
