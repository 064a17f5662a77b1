package ovs

import (
	"encoding/binary"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// readFrame fills in what an Ethernet frame says of itself, as far as it goes.
func readFrame(f []byte, e *driver.FlowEvent) {
	e.Proto = model.AnyProtocol
	if len(f) < 14 {
		return
	}
	e.DstMAC, e.SrcMAC = model.MAC(f[:6]), model.MAC(f[6:12])
	typ, b := binary.BigEndian.Uint16(f[12:]), f[14:]
	for typ == 0x8100 && len(b) >= 4 {
		typ, b = binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	switch typ {
	case 0x0806: // RFC 826
		if len(b) >= 28 {
			e.ARP, e.Src, e.Dst = true, netip.AddrFrom4([4]byte(b[14:])), netip.AddrFrom4([4]byte(b[24:]))
		}
	case 0x0800:
		readIPv4(b, e)
	case 0x86dd:
		readIPv6(b, e)
	}
}

func readIPv4(b []byte, e *driver.FlowEvent) {
	if len(b) < 20 {
		return
	}
	e.Src, e.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	e.Proto = model.Protocol(b[9])
	if head := int(b[0]&15) * 4; head >= 20 && head <= len(b) && binary.BigEndian.Uint16(b[6:])&0x1fff == 0 {
		readTransport(b[head:], e)
	}
}

func readIPv6(b []byte, e *driver.FlowEvent) {
	if len(b) < 40 {
		return
	}
	e.Src, e.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	proto, rest, later := transport6(b)
	if e.Proto = proto; !later {
		readTransport(rest, e)
	}
}

// transport6 follows the extension headers of an IPv6 packet (RFC 8200 section 4) to
// its payload: proto is the payload's protocol, rest as much of the payload as there
// is; later tells that the packet is a fragment but not the first.
func transport6(b []byte) (proto model.Protocol, rest []byte, later bool) {
	next, b := b[6], b[40:]
	for {
		switch next {
		case 0, 43, 44, 60:
		default:
			return model.Protocol(next), b, false
		}
		if len(b) < 8 {
			return model.Protocol(next), nil, false
		}
		size := (int(b[1]) + 1) * 8
		if next == 44 {
			size = 8
			if binary.BigEndian.Uint16(b[2:])&0xfff8 != 0 {
				return model.Protocol(b[0]), nil, true
			}
		}
		if size > len(b) {
			return model.Protocol(next), nil, false
		}
		next, b = b[0], b[size:]
	}
}

func readTransport(b []byte, e *driver.FlowEvent) {
	switch {
	case e.Proto.HasPorts() && len(b) >= 4:
		e.SrcPort, e.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case (e.Proto == model.ProtoICMP || e.Proto == model.ProtoICMPv6) && len(b) >= 1:
		e.ICMPType = b[0]
	}
}
