package reference

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// flow names one direction of a connection within a domain, or with link-local
// addresses within a network. With ICMP, both ports are the identifier; without
// ports they are zero.
type flow struct {
	domain           desired.Domain
	src, dst         netip.Addr
	proto            model.Protocol
	srcPort, dstPort uint16
}

func (f flow) reversed() flow {
	f.src, f.dst = f.dst, f.src
	f.srcPort, f.dstPort = f.dstPort, f.srcPort
	return f
}

// fragKey names a datagram that comes in fragments (RFC 791 section 3.2).
type fragKey struct {
	domain   desired.Domain
	src, dst netip.Addr
	proto    model.Protocol
	id       uint32
}

// connectionState is how a connection was judged.
type connectionState struct {
	outside bool            // as a connection by egress
	network model.NetworkID // its source's, or where it was seen
	to      string          // for this local port as its destination; "" = for none
	by      netip.Addr      // the host that its client, outside, came by at last; zero = by none
	own     bool            // its client is a socket of this host
}

// conntrack is one host's connection table: the original direction of every
// connection that was let through, and the fragmented datagrams under way.
type conntrack struct {
	conns map[flow]connectionState
	frags map[fragKey]flow // to the original direction of the connection of the first fragment
	// What each address has in conns and frags, so that forgetting it looks at no
	// others.
	connsOf groups[addrKey, flow]
	fragsOf groups[addrKey, fragKey]
	fresh   bool // the packet under way began its connection
}

func newConntrack() *conntrack {
	return &conntrack{
		conns: map[flow]connectionState{}, frags: map[fragKey]flow{},
		connsOf: groups[addrKey, flow]{}, fragsOf: groups[addrKey, fragKey]{},
	}
}

func (c *conntrack) addConn(f flow) {
	c.connsOf.add(addrKey{f.domain, f.src}, f)
	c.connsOf.add(addrKey{f.domain, f.dst}, f)
}

func (c *conntrack) removeConn(f flow) {
	delete(c.conns, f)
	c.connsOf.remove(addrKey{f.domain, f.src}, f)
	c.connsOf.remove(addrKey{f.domain, f.dst}, f)
}

func (c *conntrack) addFrag(k fragKey, orig flow) {
	c.frags[k] = orig
	c.fragsOf.add(addrKey{k.domain, k.src}, k)
	c.fragsOf.add(addrKey{k.domain, k.dst}, k)
}

func (c *conntrack) removeFrag(k fragKey) {
	delete(c.frags, k)
	c.fragsOf.remove(addrKey{k.domain, k.src}, k)
	c.fragsOf.remove(addrKey{k.domain, k.dst}, k)
}

// forget drops the connections and datagrams of an address.
func (c *conntrack) forget(a addrKey) {
	for f := range c.connsOf[a] {
		c.removeConn(f)
	}
	for k := range c.fragsOf[a] {
		c.removeFrag(k)
	}
}

// ICMP types that ask and the answers to them, and the errors (RFC 792, RFC 4443).
var (
	icmp4Query = map[uint8]bool{8: true, 13: true, 15: true, 17: true}
	icmp4Reply = map[uint8]bool{0: true, 14: true, 16: true, 18: true}
	icmp4Error = map[uint8]bool{3: true, 4: true, 5: true, 11: true, 12: true}
	icmp6Query = map[uint8]bool{128: true}
	icmp6Reply = map[uint8]bool{129: true}
	icmp6Error = map[uint8]bool{1: true, 2: true, 3: true, 4: true}
)

func flowOf(n *desired.Network, p *Packet) flow {
	f := flow{domain: spaceOf(n, p.Src, p.Dst), src: p.Src, dst: p.Dst, proto: p.Proto}
	if p.Proto.HasPorts() {
		f.srcPort, f.dstPort = p.SrcPort, p.DstPort
	} else if p.isICMP() {
		f.srcPort, f.dstPort = p.ICMPID, p.ICMPID
	}
	return f
}

// known returns the original direction of the connection that f belongs to.
func (c *conntrack) known(f flow) (flow, bool) {
	if _, ok := c.conns[f]; ok {
		return f, true
	}
	if _, ok := c.conns[f.reversed()]; ok {
		return f.reversed(), true
	}
	return flow{}, false
}

// classify returns the original direction of the connection that a packet belongs
// to, which is the packet's own when it begins one; false when it answers nothing
// that is known, or is part of nothing. ours tells that a container of this host
// sends the packet. A container is no router: its ICMP errors count only about
// packets that were sent to it.
func (c *conntrack) classify(n *desired.Network, p *Packet, ours bool) (flow, bool) {
	if p.Frag != nil && p.Frag.Offset != 0 {
		f, ok := c.frags[fragKey{spaceOf(n, p.Src, p.Dst), p.Src, p.Dst, p.Proto, p.Frag.ID}]
		return f, ok
	}
	f := flowOf(n, p)
	if p.isICMP() {
		query, reply, errs := icmp4Query, icmp4Reply, icmp4Error
		if p.Proto == model.ProtoICMPv6 {
			query, reply, errs = icmp6Query, icmp6Reply, icmp6Error
		}
		if (p.Proto == model.ProtoICMP) != p.Src.Is4() {
			return flow{}, false // ICMP of the other family
		}
		switch {
		case errs[p.ICMPType]:
			if p.Inner == nil || p.Inner.Src != p.Dst || ours && p.Inner.Dst != p.Src {
				return flow{}, false
			}
			return c.known(flowOf(n, p.Inner))
		case query[p.ICMPType]:
			return f, true // a request is in its own direction, whatever the other side asked before
		case reply[p.ICMPType]:
			_, ok := c.conns[f.reversed()]
			return f.reversed(), ok
		}
		return flow{}, false
	}
	if p.Proto == model.ProtoTCP && p.TCPFlags&(FlagSYN|FlagACK) == FlagSYN {
		return f, true // the server's own request begins a connection of its own
	}
	if orig, ok := c.known(f); ok {
		return orig, true
	}
	if p.Proto == model.ProtoTCP {
		// A connection may be picked up in its middle, but not by an answer.
		if p.TCPFlags&FlagRST != 0 || p.TCPFlags&(FlagSYN|FlagACK) == FlagSYN|FlagACK {
			return flow{}, false
		}
	}
	return f, true
}

// commit records that a packet of the connection was let through.
func (c *conntrack) commit(orig flow, p *Packet, as connectionState) {
	_, old := c.conns[orig]
	if c.fresh = !old; c.fresh {
		c.addConn(orig)
	}
	c.conns[orig] = as
	if _, both := c.conns[orig.reversed()]; both && orig.proto == model.ProtoTCP { // one of its ends began it, not both
		c.removeConn(orig.reversed())
	}
	if p.Frag == nil {
		return
	}
	k := fragKey{orig.domain, p.Src, p.Dst, p.Proto, p.Frag.ID}
	switch {
	case !p.Frag.More:
		c.removeFrag(k)
	case p.Frag.Offset == 0:
		c.addFrag(k, orig)
	}
}
