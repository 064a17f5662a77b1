package openflow

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
)

// Field is a packet header or metadata field that flows match, set or move.
type Field uint8

// The fields in canonical order of a match.
const (
	CtState Field = iota
	CtZone
	CtMark
	CtLabel
	CtNwSrc
	CtNwDst
	CtIPv6Src
	CtIPv6Dst
	CtNwProto
	CtTpSrc
	CtTpDst
	Reg0
	Reg1
	Reg2
	Reg3
	Reg4
	Reg5
	Reg6
	Reg7
	Reg8
	Reg9
	Reg10
	Reg11
	Reg12
	Reg13
	Reg14
	Reg15
	XXReg3 // the registers 12 to 15 together
	Metadata
	TunID
	TunSrc
	TunDst
	TunIPv6Src
	TunIPv6Dst
	InPort
	EthSrc
	EthDst
	EthType
	VlanVID
	IPProto
	IPTTL
	IPFrag
	NwSrc
	NwDst
	IPv6Src
	IPv6Dst
	ArpOp
	ArpSpa
	ArpTpa
	ArpSha
	ArpTha
	ICMPType
	ICMPCode
	ICMPv6Type
	ICMPv6Code
	NdTarget
	NdSll
	NdTll
	NdReserved
	NdOptionsType
	TCPSrc
	TCPDst
	TCPFlags
	UDPSrc
	UDPDst
	SCTPSrc
	SCTPDst
	// Group.Body and cookies have fields by their place: new ones come last.
	PktMark
	IPDSCP
	numFields
)

// OXM classes (OpenFlow 1.4.1 section 7.2.3.2; 0x0001 is Nicira's, 0x1000 Ericsson's).
const (
	classNX           = 0x0001
	classEricsson     = 0x1000
	classBasic        = 0x8000
	classExperimenter = 0xffff
	experimenterONF   = 0x4f4e4600
)

// format tells how ovs-ofctl prints a field's value.
type format uint8

const (
	fmtDec format = iota
	fmtHex
	fmtMAC
	fmtIPv4
	fmtIPv6
	fmtCtState
	fmtTCPFlags
	fmtPort
	fmtFrag
)

type fieldInfo struct {
	name  string // as a match key of ovs-ofctl
	nxm   string // as in a move or a subfield
	class uint16
	num   uint8
	bytes uint8
	fmt   format
	mask  bool // may be masked in a match
}

var fields = func() (t [numFields]fieldInfo) {
	t = [numFields]fieldInfo{
		PktMark:       {"pkt_mark", "NXM_NX_PKT_MARK", classNX, 33, 4, fmtHex, true},
		IPDSCP:        {"ip_dscp", "OXM_OF_IP_DSCP", classBasic, 8, 1, fmtDec, false},
		CtState:       {"ct_state", "NXM_NX_CT_STATE", classNX, 105, 4, fmtCtState, true},
		CtZone:        {"ct_zone", "NXM_NX_CT_ZONE", classNX, 106, 2, fmtDec, false},
		CtMark:        {"ct_mark", "NXM_NX_CT_MARK", classNX, 107, 4, fmtHex, true},
		CtLabel:       {"ct_label", "NXM_NX_CT_LABEL", classNX, 108, 16, fmtHex, true},
		CtNwSrc:       {"ct_nw_src", "NXM_NX_CT_NW_SRC", classNX, 120, 4, fmtIPv4, true},
		CtNwDst:       {"ct_nw_dst", "NXM_NX_CT_NW_DST", classNX, 121, 4, fmtIPv4, true},
		CtIPv6Src:     {"ct_ipv6_src", "NXM_NX_CT_IPV6_SRC", classNX, 122, 16, fmtIPv6, true},
		CtIPv6Dst:     {"ct_ipv6_dst", "NXM_NX_CT_IPV6_DST", classNX, 123, 16, fmtIPv6, true},
		CtNwProto:     {"ct_nw_proto", "NXM_NX_CT_NW_PROTO", classNX, 119, 1, fmtDec, false},
		CtTpSrc:       {"ct_tp_src", "NXM_NX_CT_TP_SRC", classNX, 124, 2, fmtDec, true},
		CtTpDst:       {"ct_tp_dst", "NXM_NX_CT_TP_DST", classNX, 125, 2, fmtDec, true},
		XXReg3:        {"xxreg3", "NXM_NX_XXREG3", classNX, 114, 16, fmtHex, true},
		Metadata:      {"metadata", "OXM_OF_METADATA", classBasic, 2, 8, fmtHex, true},
		TunID:         {"tun_id", "NXM_NX_TUN_ID", classBasic, 38, 8, fmtHex, true},
		TunSrc:        {"tun_src", "NXM_NX_TUN_IPV4_SRC", classNX, 31, 4, fmtIPv4, true},
		TunDst:        {"tun_dst", "NXM_NX_TUN_IPV4_DST", classNX, 32, 4, fmtIPv4, true},
		TunIPv6Src:    {"tun_ipv6_src", "NXM_NX_TUN_IPV6_SRC", classNX, 109, 16, fmtIPv6, true},
		TunIPv6Dst:    {"tun_ipv6_dst", "NXM_NX_TUN_IPV6_DST", classNX, 110, 16, fmtIPv6, true},
		InPort:        {"in_port", "OXM_OF_IN_PORT", classBasic, 0, 4, fmtPort, false},
		EthSrc:        {"dl_src", "NXM_OF_ETH_SRC", classBasic, 4, 6, fmtMAC, true},
		EthDst:        {"dl_dst", "NXM_OF_ETH_DST", classBasic, 3, 6, fmtMAC, true},
		EthType:       {"dl_type", "NXM_OF_ETH_TYPE", classBasic, 5, 2, fmtHex, false},
		VlanVID:       {"vlan_vid", "OXM_OF_VLAN_VID", classBasic, 6, 2, fmtHex, true},
		IPProto:       {"nw_proto", "NXM_OF_IP_PROTO", classBasic, 10, 1, fmtDec, false},
		IPTTL:         {"nw_ttl", "NXM_NX_IP_TTL", classNX, 29, 1, fmtDec, false},
		IPFrag:        {"nw_frag", "NXM_NX_IP_FRAG", classNX, 26, 1, fmtFrag, true},
		NwSrc:         {"nw_src", "NXM_OF_IP_SRC", classBasic, 11, 4, fmtIPv4, true},
		NwDst:         {"nw_dst", "NXM_OF_IP_DST", classBasic, 12, 4, fmtIPv4, true},
		IPv6Src:       {"ipv6_src", "NXM_NX_IPV6_SRC", classBasic, 26, 16, fmtIPv6, true},
		IPv6Dst:       {"ipv6_dst", "NXM_NX_IPV6_DST", classBasic, 27, 16, fmtIPv6, true},
		ArpOp:         {"arp_op", "NXM_OF_ARP_OP", classBasic, 21, 2, fmtDec, false},
		ArpSpa:        {"arp_spa", "NXM_OF_ARP_SPA", classBasic, 22, 4, fmtIPv4, true},
		ArpTpa:        {"arp_tpa", "NXM_OF_ARP_TPA", classBasic, 23, 4, fmtIPv4, true},
		ArpSha:        {"arp_sha", "NXM_NX_ARP_SHA", classBasic, 24, 6, fmtMAC, true},
		ArpTha:        {"arp_tha", "NXM_NX_ARP_THA", classBasic, 25, 6, fmtMAC, true},
		ICMPType:      {"icmp_type", "NXM_OF_ICMP_TYPE", classBasic, 19, 1, fmtDec, false},
		ICMPCode:      {"icmp_code", "NXM_OF_ICMP_CODE", classBasic, 20, 1, fmtDec, false},
		ICMPv6Type:    {"icmpv6_type", "NXM_NX_ICMPV6_TYPE", classBasic, 29, 1, fmtDec, false},
		ICMPv6Code:    {"icmpv6_code", "NXM_NX_ICMPV6_CODE", classBasic, 30, 1, fmtDec, false},
		NdTarget:      {"nd_target", "NXM_NX_ND_TARGET", classBasic, 31, 16, fmtIPv6, true},
		NdSll:         {"nd_sll", "NXM_NX_ND_SLL", classBasic, 32, 6, fmtMAC, true},
		NdTll:         {"nd_tll", "NXM_NX_ND_TLL", classBasic, 33, 6, fmtMAC, true},
		NdReserved:    {"nd_reserved", "ERICOXM_OF_ICMPV6_ND_RESERVED", classEricsson, 1, 4, fmtDec, false},
		NdOptionsType: {"nd_options_type", "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE", classEricsson, 2, 1, fmtDec, false},
		TCPSrc:        {"tp_src", "NXM_OF_TCP_SRC", classBasic, 13, 2, fmtDec, true},
		TCPDst:        {"tp_dst", "NXM_OF_TCP_DST", classBasic, 14, 2, fmtDec, true},
		TCPFlags:      {"tcp_flags", "NXM_NX_TCP_FLAGS", classExperimenter, 42, 2, fmtTCPFlags, true},
		UDPSrc:        {"tp_src", "NXM_OF_UDP_SRC", classBasic, 15, 2, fmtDec, true},
		UDPDst:        {"tp_dst", "NXM_OF_UDP_DST", classBasic, 16, 2, fmtDec, true},
		SCTPSrc:       {"tp_src", "OXM_OF_SCTP_SRC", classBasic, 17, 2, fmtDec, true},
		SCTPDst:       {"tp_dst", "OXM_OF_SCTP_DST", classBasic, 18, 2, fmtDec, true},
	}
	for i := range Field(16) {
		n := strconv.Itoa(int(i))
		t[Reg0+i] = fieldInfo{"reg" + n, "NXM_NX_REG" + n, classNX, uint8(i), 4, fmtHex, true}
	}
	return t
}()

type classNum struct {
	class uint16
	num   uint8
}

var byNumber = func() map[classNum]Field {
	m := map[classNum]Field{}
	for f := range numFields {
		m[classNum{fields[f].class, fields[f].num}] = f
	}
	// Open vSwitch answers with the older Nicira numbers where a field has both.
	maps.Copy(m, map[classNum]Field{
		{0, 1}: EthDst, {0, 2}: EthSrc, {0, 3}: EthType, {0, 6}: IPProto, {0, 7}: NwSrc, {0, 8}: NwDst,
		{0, 9}: TCPSrc, {0, 10}: TCPDst, {0, 11}: UDPSrc, {0, 12}: UDPDst, {0, 13}: ICMPType, {0, 14}: ICMPCode,
		{0, 15}: ArpOp, {0, 16}: ArpSpa, {0, 17}: ArpTpa,
		{classNX, 16}: TunID, {classNX, 17}: ArpSha, {classNX, 18}: ArpTha, {classNX, 19}: IPv6Src, {classNX, 20}: IPv6Dst,
		{classNX, 21}: ICMPv6Type, {classNX, 22}: ICMPv6Code, {classNX, 23}: NdTarget, {classNX, 24}: NdSll, {classNX, 25}: NdTll,
	})
	return m
}()

func (f Field) String() string {
	if f < numFields {
		return fields[f].name
	}
	return "field" + strconv.Itoa(int(f))
}

// setName is the field's name in set_field, which never uses the short forms.
func (f Field) setName() string {
	switch f {
	case EthSrc:
		return "eth_src"
	case EthDst:
		return "eth_dst"
	case NwSrc:
		return "ip_src"
	case NwDst:
		return "ip_dst"
	case TCPSrc:
		return "tcp_src"
	case TCPDst:
		return "tcp_dst"
	case UDPSrc:
		return "udp_src"
	case UDPDst:
		return "udp_dst"
	case SCTPSrc:
		return "sctp_src"
	case SCTPDst:
		return "sctp_dst"
	default:
		return fields[f].name
	}
}

// Bits is the field's width.
func (f Field) Bits() int { return int(fields[f].bytes) * 8 }

// header is the 32-bit OXM header of the field's exact or masked form
// (OpenFlow 1.4.1 section 7.2.3.2), without the experimenter number.
func (f Field) header(masked bool) uint32 {
	i := &fields[f]
	n := uint32(i.bytes)
	h := uint32(i.class)<<16 | uint32(i.num)<<9
	if masked {
		h |= 1 << 8
		n *= 2
	}
	if i.class == classExperimenter {
		n += 4
	}
	return h | n
}

// Value is a field's contents of up to 128 bits, right-aligned.
type Value struct{ Hi, Lo uint64 }

// Uint makes a Value of a number.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int](n T) Value { return Value{Lo: uint64(n)} }

// MAC makes a Value of an Ethernet address.
func MAC(m [6]byte) Value {
	var v Value
	for _, b := range m {
		v.Lo = v.Lo<<8 | uint64(b)
	}
	return v
}

// Addr makes a Value of an IPv4 or IPv6 address.
func Addr(a netip.Addr) Value {
	if a.Is4() {
		b := a.As4()
		return Value{Lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return Value{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// ones is a mask of the n highest of width bits.
func ones(n, width int) Value {
	low := width - n // number of zero bits below
	var v Value
	for i := low; i < width; i++ {
		if i < 64 {
			v.Lo |= 1 << i
		} else {
			v.Hi |= 1 << (i - 64)
		}
	}
	return v
}

func (v Value) and(m Value) Value { return Value{v.Hi & m.Hi, v.Lo & m.Lo} }

// prefixLen returns the mask's length when it is a prefix of width bits, else -1.
func (v Value) prefixLen(width int) int {
	n := bits.OnesCount64(v.Hi) + bits.OnesCount64(v.Lo)
	if v == ones(n, width) {
		return n
	}
	return -1
}

// append writes the n lowest bytes.
func (v Value) append(b []byte, n int) []byte {
	var x [16]byte
	binary.BigEndian.PutUint64(x[:8], v.Hi)
	binary.BigEndian.PutUint64(x[8:], v.Lo)
	return append(b, x[16-n:]...)
}

func readValue(b []byte) Value {
	var x [16]byte
	copy(x[16-len(b):], b)
	return Value{binary.BigEndian.Uint64(x[:8]), binary.BigEndian.Uint64(x[8:])}
}

func (v Value) mac() string {
	b := v.append(nil, 6)
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}

func (v Value) addr(six bool) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte(v.append(nil, 16)))
	}
	return netip.AddrFrom4([4]byte(v.append(nil, 4)))
}

func (v Value) hex() string {
	if v.Hi != 0 {
		return fmt.Sprintf("0x%x%016x", v.Hi, v.Lo)
	}
	return fmt.Sprintf("0x%x", v.Lo)
}

// text prints a value alone, as ovs-ofctl does in set_field.
func (f Field) text(v Value) string {
	switch fields[f].fmt {
	case fmtMAC:
		return v.mac()
	case fmtIPv4:
		return v.addr(false).String()
	case fmtIPv6:
		// Open vSwitch prints IPv4-mapped and all others in the form of RFC 5952.
		return v.addr(true).String()
	case fmtPort:
		return portText(uint32(v.Lo))
	case fmtDec:
		return strconv.FormatUint(v.Lo, 10)
	case fmtHex, fmtCtState, fmtTCPFlags, fmtFrag:
	}
	if f == VlanVID {
		return strconv.FormatUint(v.Lo, 10)
	}
	return v.hex()
}

// Connection tracking states (ovs-fields(7), "ct_state").
const (
	StateNew = 1 << iota
	StateEst
	StateRel
	StateRpl
	StateInv
	StateTrk
	StateSNAT
	StateDNAT
)

var stateNames = []string{"new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"}

var tcpFlagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"}

func flagText(names []string, v, m uint64) string {
	var s strings.Builder
	for i, n := range names {
		if m>>i&1 == 0 {
			continue
		}
		if v>>i&1 == 1 {
			s.WriteString("+" + n)
		} else {
			s.WriteString("-" + n)
		}
	}
	return s.String()
}
