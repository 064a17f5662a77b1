package model

import (
	"fmt"
	"strconv"
	"strings"
)

// The enumerations below reject unknown values; their zero value is "not set" and
// never means "any". Each is stored as its text.
type (
	InfraType   string
	FwdMode     string
	ArpMode     string
	NetworkType string
	Encap       string
	Direction   string
)

// The values of the enumerations.
const (
	InfraDefault   InfraType = "default"
	InfraACI       InfraType = "aci"
	InfraACIOpflex InfraType = "aci-opflex"

	FwdBridge  FwdMode = "bridge"
	FwdRouting FwdMode = "routing"

	ArpProxy ArpMode = "proxy"
	ArpFlood ArpMode = "flood"

	NetworkData  NetworkType = "data"
	NetworkInfra NetworkType = "infra"

	EncapVLAN  Encap = "vlan"
	EncapVXLAN Encap = "vxlan"

	In  Direction = "in"  // towards the endpoints that the policy applies to
	Out Direction = "out" // from them
)

func parseEnum[T ~string](field, s string, known ...T) (T, error) {
	names := make([]string, len(known))
	for i, k := range known {
		if string(k) == s {
			return k, nil
		}
		names[i] = string(k)
	}
	want := "must be one of " + strings.Join(names, ", ")
	if s == "" {
		want = "is missing: " + want
	}
	return "", InvalidField(field, s, want)
}

// ParseInfraType, like all ParseX below, returns an ErrInvalid that names the
// field and the allowed values.
func ParseInfraType(s string) (InfraType, error) {
	return parseEnum("networkInfraType", s, InfraDefault, InfraACI, InfraACIOpflex)
}

// ParseFwdMode parses a forwarding mode.
func ParseFwdMode(s string) (FwdMode, error) { return parseEnum("fwdMode", s, FwdBridge, FwdRouting) }

// ParseArpMode parses an ARP mode.
func ParseArpMode(s string) (ArpMode, error) { return parseEnum("arpMode", s, ArpProxy, ArpFlood) }

// ParseNetworkType parses a network's type; empty is NetworkData.
func ParseNetworkType(s string) (NetworkType, error) {
	if s == "" {
		return NetworkData, nil
	}
	return parseEnum("nwType", s, NetworkData, NetworkInfra)
}

// ParseEncap parses an encapsulation. There is no default, as in 1.x.
func ParseEncap(s string) (Encap, error) { return parseEnum("encap", s, EncapVLAN, EncapVXLAN) }

// ParseDirection parses a rule's direction.
func ParseDirection(s string) (Direction, error) { return parseEnum("direction", s, In, Out) }

// Protocol is an IP protocol number (IANA assigned, 0-255), or AnyProtocol.
// ProtoICMP stands for ICMP on IPv4 and ICMPv6 on IPv6.
type Protocol int16

// The protocols that have names here.
const (
	AnyProtocol Protocol = -1
	ProtoICMP   Protocol = 1
	ProtoTCP    Protocol = 6
	ProtoUDP    Protocol = 17
	ProtoICMPv6 Protocol = 58
	ProtoSCTP   Protocol = 132
)

// HasPorts reports whether packets of the protocol carry ports.
func (p Protocol) HasPorts() bool { return p == ProtoTCP || p == ProtoUDP || p == ProtoSCTP }

func (p Protocol) String() string {
	switch p {
	case AnyProtocol:
		return ""
	case ProtoICMP:
		return "icmp"
	case ProtoTCP:
		return "tcp"
	case ProtoUDP:
		return "udp"
	default:
		return strconv.Itoa(int(p))
	}
}

// ParseProtocol parses "tcp", "udp", "icmp", empty (any) or a number 0-255.
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "":
		return AnyProtocol, nil
	case "icmp":
		return ProtoICMP, nil
	case "tcp":
		return ProtoTCP, nil
	case "udp":
		return ProtoUDP, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, InvalidField("protocol", s, "must be tcp, udp, icmp or a number between 0 and 255")
	}
	return Protocol(n), nil
}

func itoa(n int) string { return strconv.Itoa(n) }

// TagRange is an inclusive range of VLAN ids or VNIs; Lo <= Hi.
type TagRange struct {
	Lo uint32 `json:"lo"`
	Hi uint32 `json:"hi"`
}

func (r TagRange) String() string { return fmt.Sprintf("%d-%d", r.Lo, r.Hi) }

// Contains reports whether tag lies in the range.
func (r TagRange) Contains(tag uint32) bool { return r.Lo <= tag && tag <= r.Hi }

const (
	// MaxVLAN is the highest VLAN id of a data network (IEEE 802.1Q reserves 4095).
	MaxVLAN = 4094
	// MaxVNI is the highest VXLAN network identifier (RFC 7348 section 5: 24 bits).
	MaxVNI = 1<<24 - 1
)

// ParseTagRange parses "lo-hi" with 1 <= lo <= hi <= limit.
func ParseTagRange(field, s string, limit uint32) (TagRange, error) {
	var r TagRange
	want := fmt.Sprintf("must be lo-hi with 1 <= lo <= hi <= %d", limit)
	if n, err := fmt.Sscanf(s, "%d-%d", &r.Lo, &r.Hi); n != 2 || err != nil || r.String() != s ||
		r.Lo < 1 || r.Lo > r.Hi || r.Hi > limit {
		return TagRange{}, InvalidField(field, s, want)
	}
	return r, nil
}
