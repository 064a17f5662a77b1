package ebpf

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The types here are the map layouts of bpf/maps.h, field by field; a test
// compares their sizes with the compiled programs'. Multi-byte fields are in
// host order unless their comment says network order.

// addr is an address as the maps hold it: IPv4 as IPv4-mapped IPv6; zero = none.
type addr [16]byte

func toAddr(a netip.Addr) addr {
	if !a.IsValid() {
		return addr{}
	}
	return a.As16()
}

func (a addr) netip() netip.Addr {
	if a == (addr{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a).Unmap()
}

const (
	encapVXLAN = 1
	encapVLAN  = 2
)

func toEncap(e model.Encap) uint32 {
	if e == model.EncapVLAN {
		return encapVLAN
	}
	return encapVXLAN
}

type settings struct {
	Epoch, Flood, VXLAN, Uplink uint32
	Underlay                    uint32
	VTEP, VTEPMask              [4]byte // network order
	VXLANPort                   [2]byte // network order
	Services                    uint16  // servicesAny, servicesExposed
	Monitor                     uint32
	Host                        uint32
	HostIP                      uint32 // network order, as the two below
	PrivateNet, PrivateMask     uint32
	Private6                    addr
	Router                      model.MAC
	RoutedNetworks, Pad         uint8 // there are routed networks
	MTU, UplinkMTU              uint32
}

const (
	servicesAny     = 1
	servicesExposed = 2 // to clients outside
)

const (
	monitorDrops       = 1
	monitorConnections = 2
	monitorMembership  = 4
)

// tunnelSource is the address that tunnel packets are sent from, as station's.
type tunnelSource struct {
	Family uint32 // 0 = the routing table chooses
	VTEP   [16]byte
}

type port struct {
	Net, Domain, Tag, Encap, Identity, Set uint32
	IP4, IP6                               addr
	MAC                                    model.MAC
	Diverts6, Diverts                      uint8
	PrivateIP, RouterIP                    uint32 // network order, as the two below
	RouterIP6                              addr
	Subnet, Mask                           uint32
	Subnet6, Mask6, Private6               addr
	Slot                                   uint32 // of its counters
	Routed                                 uint16
	Queued, TOS                            uint8 // what it receives goes by its interface's queue; what it sends is marked
}

// queue is what is done on an interface with a queue.
type queue struct {
	To  uint32 // on a port the queue, 0 = none; at a queue's far end the port
	TOS uint8
	Pad [3]byte
}

type tagKey struct{ Encap, Tag uint32 }

// segment is what a tag is.
type segment struct{ Net, Domain uint32 }

type network struct {
	Encap, Tag, Ports, VTEPs uint32
}

type stationKey struct {
	Net uint32
	MAC model.MAC
	Pad [2]byte
}

type station struct {
	Ifindex, Set, Family uint32
	VTEP                 [16]byte
}

func (s *station) setVTEP(a netip.Addr) { s.Family, s.VTEP = toVTEP(a) }

// toVTEP is a tunnel endpoint as the maps hold it: family 0 = none.
func toVTEP(a netip.Addr) (family uint32, vtep [16]byte) {
	switch {
	case a.Is4():
		b := a.As4()
		binary.NativeEndian.PutUint32(vtep[:], binary.BigEndian.Uint32(b[:]))
		return 4, vtep
	case a.IsValid():
		return 6, a.As16()
	}
	return 0, vtep
}

func (s station) vtep() netip.Addr {
	switch s.Family {
	case 4:
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], binary.NativeEndian.Uint32(s.VTEP[:]))
		return netip.AddrFrom4(b)
	case 6:
		return netip.AddrFrom16(s.VTEP)
	}
	return netip.Addr{}
}

// subnetKey finds the network of a domain that has an address in its subnets.
type subnetKey struct {
	Bits, Domain uint32
	IP           addr
}

const (
	domainBits = 32
	mappedBits = 96 // of IPv4 in IPv6
)

func toSubnetKey(d desired.Domain, p netip.Prefix) subnetKey {
	bits := domainBits + p.Bits()
	if p.Addr().Is4() {
		bits += mappedBits
	}
	return subnetKey{uint32(bits), uint32(d), toAddr(p.Masked().Addr())}
}

func (k subnetKey) prefix() netip.Prefix {
	bits := int(k.Bits) - domainBits
	if k.IP.netip().Is4() {
		bits -= mappedBits
	}
	return netip.PrefixFrom(k.IP.netip(), bits)
}

type domainAddr struct {
	Domain uint32 // of a link-local address the network
	IP     addr
}

type endpointEntry struct {
	Identity, Ifindex, Set uint32
	OwnerVersion, Net      uint32
	MAC                    model.MAC
	OutsideSubnets, Pad    uint8
}

type memberKey struct{ Net, Kind, Index uint32 }

const (
	memberPort = 0
	memberVTEP = 1
)

// stage is one tier in one direction.
type stage struct {
	Lengths [2 * lengthWords]uint64 // of prefixes in use: IPv4, IPv6 from 0, 64 and 128 on; of any network, then of the packet's
	Tier    uint8                   // what its rules are found under
	Action  uint8                   // where no rule matches
	Kinds   uint8                   // of peers in use, a bit each
	Pad     [5]byte
}

const lengthWords = 4

type policySet struct {
	Generation uint64 // of its rules
	Instance   uint32 // what its rules are found under
	Tiers      [2]uint8
	Audits     uint8 // it has rules with Log or audited sets
	Pad        byte
	Stages     [2][maxTiers]stage
}

const (
	maxTiers = 5
	dirIn    = 0
	dirOut   = 1

	peerAny      = 0
	peerIdentity = 1
	peerCIDR4    = 2
	peerCIDR6    = 3
)

// ruleKey is where one rule of one peer stands.
type ruleKey struct {
	Instance        uint32
	Dir, Tier, Kind uint8
	Bits            uint8     // of the address
	Peer            [2]uint64 // an address, its first half first; or an identity, in the second
	Scope           uint32    // network; 0 = any
	Proto, PortBits uint8
	Port            uint16
}

// anyProtocol, as PortBits, is a peer's rule for everything. Each peer that has
// rules has such an entry, which need not hold one.
const anyProtocol = 0xff

// rule is who decides at a key, up to a generation and from it on.
type rule struct {
	Generation uint64
	ID         [2]uint64
	Ports      uint64    // under anyProtocol: lengths of port prefixes in use, for TCP, for UDP, for others
	Weight     [2]uint32 // the highest decides; 0 = there is none
}

// portMaskBits is how many lengths of port prefixes there are; bit i stands for 16 - i.
const portMaskBits = 17

type connKey struct {
	Domain         uint32 // between link-local addresses the network
	Proto, Flip    uint8
	LoPort, HiPort uint16
	Pad            uint16
	Lo, Hi         addr
}

type conn struct {
	Seen, OutRule, InRule                   uint64
	Version, LoOwnerVersion, HiOwnerVersion uint32
	InIfindex, Slot                         uint32
	Owner                                   uint16
	Flipped, State                          uint8
	IngressHost, Pad                        uint32
}

const (
	connReplied = 1 << iota
	connOpen
	connViaHost
	connReset
	connFin        // of who began
	connFinReply   // of the other end
	connService    // there is a translation of it
	connHostSocket // who began is a socket of this host
)

// slot is a place for a half-open connection.
type slot struct {
	Owner uint32
	Key   connKey
}

// ownerShare is how many connections an owner holds.
type ownerShare struct{ Half, Open uint32 }

const ownerCount = 16384

type fragKey struct {
	Domain, ID uint32
	Src, Dst   addr
	Proto      uint32
}

type frag struct {
	Src, Dst     addr
	Sport, Dport uint16
	Proto        uint8
	Pad          [3]byte
	Reply, Pad2  uint8
	Parts        uint16
	Waits        uint32
	Seen         uint64
	Part         [64][2]uint16 // bytes of the datagram, from and to
}

// fragLife is how long a fragment finds its first one's connection.
const fragLife = 30 * time.Second

type counter struct{ Packets, Bytes uint64 }

type portCounter struct{ Rx, Tx counter }

// ruleTally counts for one rule on one processor.
type ruleTally struct {
	ID   uint64 // 0 = unused
	N    counter
	Seen uint64 // in ticks
}

// event is a record of the ring buffer.
type event struct {
	Time, Hash, OutRule, InRule uint64
	Src, Dst                    addr
	Net, Ifindex, OutSet, InSet uint32
	Count, Slot, CPU            uint32
	SrcPort, DstPort            uint16
	Proto, Type, Reason, Tier   uint8
	SrcMAC, DstMAC              model.MAC
	ARP, Audits, Path, Plain    uint8
	Replaced                    uint32
}

type eventSlot struct{ Hash, LastReported, Suppressed uint64 }

type eventBudget struct{ Second, Used, Lost uint64 }

const eventSlots = 1024
