package l2announce

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
)

// Of frames.
const (
	macLen   = 6
	etherLen = 14
	arpLen   = 28
	ipv6Len  = 40
	ndLen    = 24 // type, code, checksum, flags, target
	optLen   = 8  // a link-layer address

	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	icmpv6    = 58

	arpRequest = 1
	arpReply   = 2

	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
	optTargetMAC           = 2

	ndSolicited = 0x40
	ndOverride  = 0x20
)

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// answer returns the frame that answers a question for one of some addresses; nil = it
// is none.
func answer(frame []byte, mac net.HardwareAddr, ours func(netip.Addr) bool) []byte {
	if len(frame) < etherLen || bytes.Equal(frame[macLen:2*macLen], mac) {
		return nil
	}
	asker, body := net.HardwareAddr(frame[macLen:2*macLen]), frame[etherLen:]
	switch binary.BigEndian.Uint16(frame[2*macLen:]) {
	case etherARP:
		return answerARP(body, asker, mac, ours)
	case etherIPv6:
		return answerND(body, asker, mac, ours)
	}
	return nil
}

func answerARP(b []byte, asker, mac net.HardwareAddr, ours func(netip.Addr) bool) []byte {
	if len(b) < arpLen || !bytes.Equal(b[:8], []byte{0, 1, 8, 0, macLen, 4, 0, arpRequest}) {
		return nil
	}
	target := netip.AddrFrom4([4]byte(b[24:28]))
	if bytes.Equal(b[14:18], b[24:28]) || !ours(target) { // a gratuitous ARP announces and wants no answer
		return nil
	}
	return arp(mac, asker, arpReply, target, net.HardwareAddr(b[8:14]), netip.AddrFrom4([4]byte(b[14:18])))
}

// arp is an ARP frame.
func arp(from, to net.HardwareAddr, op byte, sender netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	f := ether(to, from, etherARP)
	f = append(f, 0, 1, 8, 0, macLen, 4, 0, op)
	f = append(append(f, from...), sender.AsSlice()...)
	return append(append(f, targetMAC...), target.AsSlice()...)
}

func answerND(b []byte, asker, mac net.HardwareAddr, ours func(netip.Addr) bool) []byte {
	if len(b) < ipv6Len+ndLen || b[0]>>4 != 6 || b[6] != icmpv6 || b[7] != 255 {
		return nil
	}
	src, nd := netip.AddrFrom16([16]byte(b[8:24])), b[ipv6Len:]
	if size := int(binary.BigEndian.Uint16(b[4:])); size < ndLen || size > len(nd) {
		return nil
	} else if nd = nd[:size]; checksum.Upper(icmpv6, b[8:40], nd) != checksum.Right {
		return nil
	}
	target := netip.AddrFrom16([16]byte(nd[8:24]))
	if nd[0] != neighbourSolicitation || nd[1] != 0 || src.IsMulticast() || !ours(target) {
		return nil
	}
	if src.IsUnspecified() { // who wants the address for itself
		return advertisement(mac, group(allNodes), target, allNodes, ndOverride)
	}
	return advertisement(mac, asker, target, src, ndSolicited|ndOverride)
}

// advertisement says at which MAC an IPv6 address is.
func advertisement(mac, toMAC net.HardwareAddr, addr, to netip.Addr, flags byte) []byte {
	nd := append([]byte{neighbourAdvertisement, 0, 0, 0, flags, 0, 0, 0}, addr.AsSlice()...)
	nd = append(append(nd, optTargetMAC, 1), mac...)
	ip := append([]byte{6 << 4, 0, 0, 0, 0, byte(len(nd)), icmpv6, 255}, addr.AsSlice()...)
	ip = append(ip, to.AsSlice()...)
	binary.BigEndian.PutUint16(nd[2:], ^checksum.Upper(icmpv6, ip[8:40], nd))
	return append(append(ether(toMAC, mac, etherIPv6), ip...), nd...)
}

// Announcement tells all neighbours at which MAC an address is.
func Announcement(mac net.HardwareAddr, a netip.Addr) []byte {
	if a.Is6() {
		return advertisement(mac, group(allNodes), a, allNodes, ndOverride)
	}
	return arp(mac, broadcast, arpRequest, a, make(net.HardwareAddr, macLen), a)
}

func ether(to, from net.HardwareAddr, kind uint16) []byte {
	f := make([]byte, 0, etherLen+ipv6Len+ndLen+optLen)
	return binary.BigEndian.AppendUint16(append(append(f, to...), from...), kind)
}

// group is the MAC of an IPv6 group.
func group(a netip.Addr) net.HardwareAddr {
	b := a.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// solicited is the group in which an IPv6 address is asked for.
func solicited(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}
