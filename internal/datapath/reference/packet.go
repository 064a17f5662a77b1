package reference

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Packet is a frame to be judged. Where it comes from is one of Port,
// VTEP with Network, Uplink with VLAN, and Host. What it is: ARP, when ARP is set;
// IPv4 or IPv6, when Src and Dst are; anything else is dropped.
type Packet struct {
	Port    string          // sent by the container behind this local port
	VTEP    netip.Addr      // came through a tunnel from this host
	Network model.NetworkID // on this network
	Uplink  bool            // came from the physical network
	VLAN    uint32          // with this tag
	Host    bool            // sent by the host's own stack on Private.Interface
	Own     bool            // ... by a socket of the host, untranslated, and not forwarded

	SrcMAC, DstMAC model.MAC
	ARP            *ARP

	Src, Dst         netip.Addr
	TTL              uint8          // or hop limit; 0 = as hosts send (Hops); see NoHopsLeft
	Proto            model.Protocol // for ICMP on IPv6: ProtoICMPv6
	SrcPort, DstPort uint16         // with ports
	TCPFlags         uint8          // FlagSYN ...
	ICMPType         uint8
	ICMPCode         uint8
	ICMPID           uint16  // of echo and its like
	ND               *ND     // of neighbour discovery
	Inner            *Packet // of an ICMP error: the packet that it is about
	Frag             *Fragment
	Bytes            int // length; only counted
	Damage           Damage
	Form             Form
}

// Damage is what is wrong with an IP packet beyond what its fields say.
type Damage uint8

// The kinds. A TCP packet with impossible flags is damaged without one.
const (
	Intact        Damage = iota
	UDPTooLong           // the UDP length is beyond the packet
	UDPLengthZero        // the UDP length is 0
	TCPBeyond            // TCP's data begin beyond the packet
	TCPInside            // TCP's data begin in its header
	WrongChecksum        // the IPv4 header's checksum is wrong
	NoHopsLeft           // TTL or hop limit is 0
	ReservedFlag         // of IPv4 (RFC 791: must be zero)
	CutShort             // the frame ends before the packet does
)

// Form is how an IP packet is encoded, which no rule judges.
type Form uint8

// The forms.
const (
	Plain    Form = iota
	Options       // a header has options without effect: IPv4's own, or a destination options header of IPv6
	Padded        // the frame goes on after the packet, as short ones do on Ethernet
	Unsummed      // UDP over IPv4 without a checksum (RFC 768); else Plain
)

// damaged reports whether no stack sends such a packet.
func (p *Packet) damaged() bool {
	return p.Damage != Intact || p.Proto == model.ProtoTCP && (p.Frag == nil || p.Frag.Offset == 0) && !tcpFlags(p.TCPFlags)
}

// tcpFlags reports whether a TCP segment may have the flags: a request is neither
// an end nor a reset, and all others but a reset acknowledge something.
func tcpFlags(f uint8) bool {
	if f&FlagSYN != 0 && f&(FlagFIN|FlagRST) != 0 {
		return false
	}
	return f&FlagACK != 0 || f&(FlagSYN|FlagRST) != 0 && f&(FlagFIN|FlagPSH|FlagURG) == 0
}

// TCP flags (RFC 9293 section 3.1).
const (
	FlagFIN uint8 = 1 << iota
	FlagSYN
	FlagRST
	FlagPSH
	FlagACK
	FlagURG
)

// ARP is an address resolution message for IPv4 over Ethernet (RFC 826).
type ARP struct {
	Op                 uint16 // 1 request, 2 reply
	SenderMAC          model.MAC
	SenderIP, TargetIP netip.Addr
	TargetMAC          model.MAC
}

// The operations of ARP (RFC 826).
const (
	ARPRequest uint16 = 1
	ARPReply   uint16 = 2
)

// ND is the content of a neighbour discovery message beyond its ICMPv6 type (RFC 4861
// section 4). LinkAddr is the source or target link-layer address option; HasLink reports
// whether it is there. Second is the content of a repeated option, which no stack sends:
// zero without one.
type ND struct {
	Target   netip.Addr
	LinkAddr model.MAC
	HasLink  bool
	Second   model.MAC
}

// ICMPv6 types of neighbour discovery (RFC 4861 section 4).
const (
	NDRouterSolicit   uint8 = 133
	NDRouterAdvert    uint8 = 134
	NDNeighborSolicit uint8 = 135
	NDNeighborAdvert  uint8 = 136
	NDRedirect        uint8 = 137
)

// Fragment says which part of a datagram the packet is. Ports and ICMP fields
// count only at Offset 0.
type Fragment struct {
	ID     uint32
	Offset uint16 // in bytes
	More   bool
}

// sentTTL is the TTL or hop limit that hosts send with (RFC 1340).
const sentTTL = 64

// Hops is the TTL or hop limit that an IP packet has when nothing is wrong with it.
func (p *Packet) Hops() uint8 { return cmp.Or(p.TTL, sentTTL) }

// Broadcast is the Ethernet broadcast address.
var Broadcast = model.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (p *Packet) isIP() bool { return p.Src.IsValid() && p.Dst.IsValid() && p.Src.Is4() == p.Dst.Is4() }

func (p *Packet) isND() bool {
	return p.isIP() && p.Frag == nil && p.Src.Is6() && p.Proto == model.ProtoICMPv6 &&
		p.ICMPType >= NDRouterSolicit && p.ICMPType <= NDRedirect
}

func (p *Packet) isICMP() bool { return p.Proto == model.ProtoICMP || p.Proto == model.ProtoICMPv6 }

// Verdict is what became of a packet: delivered, answered, or dropped.
type Verdict struct {
	Ports   []string     // local ports it was delivered to, sorted
	VTEPs   []netip.Addr // hosts it was tunnelled to, sorted
	Network model.NetworkID
	Uplink  bool     // it was sent out of the uplink, with VLAN
	VLAN    uint32   // tag on the uplink
	Host    bool     // it was handed to the host's own stack
	Sent    *Packet  // as it left, where egress translated it or it came or goes by a router; nil = as it came
	Answer  *Packet  // what was sent back in the name of the one that was asked, or by the router that dropped it
	Drop    string   // why it went nowhere; one of the Drop constants
	Rules   []string // ids of the rules that decided: the one that denied, or the ones that allowed
	Packet  Packet   // the packet itself
}

// Passed reports whether the packet went anywhere.
func (v Verdict) Passed() bool { return v.Drop == "" }

func (v Verdict) String() string {
	var b strings.Builder
	switch {
	case v.Drop != "":
		fmt.Fprintf(&b, "dropped (%s)", v.Drop)
		if v.Answer != nil {
			fmt.Fprintf(&b, " and answered by %s", v.Answer.Src)
		}
	case v.Answer != nil:
		fmt.Fprintf(&b, "answered by %s", v.Answer.SrcMAC)
	default:
		fmt.Fprint(&b, "delivered to")
		for _, p := range v.Ports {
			fmt.Fprintf(&b, " %s", p)
		}
		for _, a := range v.VTEPs {
			fmt.Fprintf(&b, " vtep %s", a)
		}
		if v.Uplink {
			fmt.Fprintf(&b, " uplink vlan %d", v.VLAN)
		}
		if v.Host {
			fmt.Fprint(&b, " the host")
		}
		if v.Sent != nil {
			fmt.Fprintf(&b, " as %s to %s", v.Sent.Src, v.Sent.Dst)
		}
	}
	if len(v.Rules) > 0 {
		fmt.Fprintf(&b, " by %s", strings.Join(v.Rules, " and "))
	}
	return b.String()
}
