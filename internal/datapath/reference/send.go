package reference

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Send judges one packet by what was applied, by the connections seen so far,
// and carries out the consequences: connection table and counters.
func (d *Driver) Send(p Packet) Verdict {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.tables.decisions, d.k.tables.auditEvents, d.k.conns.fresh = nil, nil, false
	v := d.k.send(&p)
	v.Packet = p
	d.k.count(&p, &v)
	d.k.report(&p, &v)
	return v
}

func dropped(reason string) Verdict { return Verdict{Drop: reason} }

// origin is where a packet came from and who sent it.
type origin struct {
	net    *desired.Network
	port   *desired.Port // nil when it came from elsewhere
	uplink bool
	host   bool       // the host's own stack
	by     netip.Addr // of a client outside: the host that it came by
	own    bool       // a socket of this host
}

func (k *kernel) send(p *Packet) Verdict {
	t := k.tables
	var from origin
	var sent *Packet
	switch {
	case p.Host:
		if n := k.exposedTo(p); n != nil {
			return k.fromOutside(p, n)
		}
		if n := t.routedNetworkAt(p.Dst); n != nil && t.private != nil {
			return k.fromStack(p, n)
		}
		if t.private != nil && p.isIP() && p.Dst == t.private.Relay(p.Dst.Is6()) {
			return k.fromRelay(p)
		}
		var why string
		if from, sent, why = t.fromHost(p); why != "" {
			return dropped(why)
		}
		p = sent
	case p.Port != "":
		port := t.ports[p.Port]
		if port == nil || t.networks[port.Network] == nil {
			return dropped(driver.DropNoPort)
		}
		from = origin{net: t.networks[port.Network], port: port}
		if !t.honest(port, p) {
			return dropped(driver.DropSpoof)
		}
	case p.Uplink:
		from = origin{net: t.byVLAN[p.VLAN], uplink: true}
		if from.net == nil {
			return dropped(driver.DropNetwork)
		}
		_, across, believed := t.across(from.net, p)
		if t.stations.byAddr(from.net, senderAddr(p)).port != nil || t.stations.byMAC(from.net.ID, p.SrcMAC).port != nil || across && !believed {
			return dropped(driver.DropSpoof)
		}
	default:
		from = origin{net: t.networks[p.Network]}
		if from.net == nil || from.net.Encap != model.EncapVXLAN || !p.VTEP.IsValid() {
			return dropped(driver.DropNetwork)
		}
		if p.SrcMAC == desired.RouterMAC {
			return k.fromRouter(from, p, p.VTEP)
		}
		if !t.ofItsHost(from.net, p) {
			return dropped(driver.DropUnknownSource)
		}
	}
	switch {
	case p.isIP() && p.damaged():
		return dropped(driver.DropInvalid)
	case p.ARP != nil || p.isND():
		return t.neighbour(from, p)
	case p.isIP():
		v := k.serve(from, p)
		if sent != nil && v.Passed() && v.Sent == nil {
			v.Sent = sent
		}
		return v
	}
	return dropped(driver.DropNotIP)
}

// ofItsHost reports whether a frame out of a tunnel is in the name of an endpoint,
// by its MAC and address, and came from that endpoint's host. What looks for a
// duplicate or a router has no address yet.
func (t *tables) ofItsHost(n *desired.Network, p *Packet) bool {
	if s, across, believed := t.across(n, p); across {
		return believed && s.remote.VTEP == p.VTEP
	}
	s := t.stations.byMAC(n.ID, p.SrcMAC)
	if s.remote == nil || s.remote.VTEP != p.VTEP {
		return false
	}
	a := senderAddr(p)
	if (p.ARP != nil || p.isND()) && (!a.IsValid() || a.IsUnspecified()) {
		return true
	}
	by := t.stations.byAddr(n, a)
	return by.known() && by.mac() == s.mac() && by.identity() != model.IdentityUnknown
}

func senderAddr(p *Packet) netip.Addr {
	if p.ARP != nil {
		return p.ARP.SenderIP
	}
	return p.Src
}

// honest reports whether a container sends in its own name only.
func (t *tables) honest(port *desired.Port, p *Packet) bool {
	if p.SrcMAC != port.MAC {
		return false
	}
	own := func(a netip.Addr) bool {
		return a.IsValid() && (a == port.IPv4 || a == port.IPv6 || a == port.MAC.LinkLocal())
	}
	if a := p.ARP; a != nil {
		return a.SenderMAC == port.MAC && (own(a.SenderIP) || a.SenderIP == netip.IPv4Unspecified() && a.Op == ARPRequest)
	}
	if !p.isND() {
		return !p.isIP() || own(p.Src)
	}
	if nd := p.ND; nd != nil && nd.HasLink && (nd.LinkAddr != port.MAC || nd.Second != model.MAC{} && nd.Second != port.MAC) {
		return false
	}
	switch p.ICMPType {
	case NDNeighborSolicit, NDRouterSolicit: // duplicate address detection and first solicitation have no source yet
		return own(p.Src) || p.Src == netip.IPv6Unspecified()
	case NDNeighborAdvert:
		return own(p.Src) && p.ND != nil && own(p.ND.Target)
	}
	return false // no endpoint is a router
}

// neighbour handles ARP and neighbour discovery, which no policy touches.
func (t *tables) neighbour(from origin, p *Packet) Verdict {
	if t.routerAnswers(from, p) {
		return Verdict{Answer: answer(p, requestedAddr(p), desired.RouterMAC)}
	}
	if t.serviceAnswers(from, p) {
		return Verdict{Answer: answer(p, requestedAddr(p), desired.RouterMAC)}
	}
	if !p.DstMAC.Multicast() && !isNeighbourRequest(p) {
		return t.toStation(from, p)
	}
	if t.arpMode == model.ArpFlood {
		if p.DstMAC.Multicast() {
			return t.flood(from, nil, nil)
		}
		return t.toStation(from, p)
	}
	if isNeighbourRequest(p) {
		target := requestedAddr(p)
		if s := t.stations.onNetwork(from.net, target); s.known() && t.answers(from, s) {
			return Verdict{Answer: answer(p, target, s.mac())}
		}
		if !p.DstMAC.Multicast() {
			if t.stations.byMAC(from.net.ID, p.DstMAC).known() {
				return t.toStation(from, p)
			}
		}
	}
	if from.port != nil && from.net.Encap == model.EncapVLAN && !t.isRouter(from.net, p.DstMAC) {
		return Verdict{Uplink: true, VLAN: from.net.Tag}
	}
	return dropped(driver.DropUnknownDest)
}

func isNeighbourRequest(p *Packet) bool {
	return p.ARP != nil && p.ARP.Op == ARPRequest || p.ARP == nil && p.ICMPType == NDNeighborSolicit && p.ND != nil
}

func requestedAddr(p *Packet) netip.Addr {
	if p.ARP != nil {
		return p.ARP.TargetIP
	}
	return p.ND.Target
}

// answers reports whether this host answers for a station. It answers its containers for
// all stations but themselves, since a request for one's own address looks for a duplicate.
// It answers the physical network for its containers, and tunnels for none.
func (t *tables) answers(from origin, s station) bool {
	if from.port != nil {
		return s.mac() != from.port.MAC
	}
	return from.uplink && s.port != nil
}

// answer makes the reply to an ARP request or a neighbour solicitation.
func answer(p *Packet, target netip.Addr, mac model.MAC) *Packet {
	if a := p.ARP; a != nil {
		return &Packet{SrcMAC: mac, DstMAC: p.SrcMAC, ARP: &ARP{
			Op: ARPReply, SenderMAC: mac, SenderIP: target, TargetMAC: a.SenderMAC, TargetIP: a.SenderIP,
		}}
	}
	dst := p.Src
	if dst.IsUnspecified() {
		dst = netip.IPv6LinkLocalAllNodes()
	}
	return &Packet{
		SrcMAC: mac, DstMAC: p.SrcMAC, Src: target, Dst: dst,
		Proto: model.ProtoICMPv6, ICMPType: NDNeighborAdvert, ND: &ND{Target: target, LinkAddr: mac, HasLink: true},
	}
}

// toStation finds where a unicast frame goes. A frame whose IP destination and MAC are
// not the same endpoint's goes nowhere: policy would judge one station, and another one
// would get the frame. Neighbour discovery, which policy does not judge, may be sent to
// an endpoint's MAC with a group's address.
func (t *tables) toStation(from origin, p *Packet) Verdict {
	mac := p.DstMAC
	by := t.stations.byAddr(from.net, p.Dst)
	if by.known() && p.ARP == nil && (by.mac() != mac || by.network() != from.net.ID) {
		return dropped(driver.DropUnknownDest)
	}
	if from.port != nil && t.isRouter(from.net, mac) {
		return dropped(driver.DropUnknownDest) // not even to the uplink
	}
	s := t.stations.byMAC(from.net.ID, mac)
	switch {
	case s.known() && !by.known() && p.isIP() && !p.isND():
		return dropped(driver.DropUnknownDest)
	case s.port != nil && s.port != from.port:
		return Verdict{Ports: []string{s.port.IfName}}
	case from.port == nil && !from.host || s.port != nil || from.host && from.net.Encap == model.EncapVLAN:
		return dropped(driver.DropUnknownDest)
	case from.net.Encap == model.EncapVLAN:
		return Verdict{Uplink: true, VLAN: from.net.Tag}
	case s.remote != nil:
		return Verdict{VTEPs: []netip.Addr{s.remote.VTEP}, Network: from.net.ID}
	}
	return dropped(driver.DropUnknownDest)
}

// membersOf tells which local ports hear a multicast group.
func (t *tables) membersOf(n *desired.Network, group netip.Addr) func(string) bool {
	g, ok := t.groups.Get(desired.GroupKey{Network: n.ID, Addr: group})
	return func(port string) bool { return ok && slices.Contains(g.Ports, port) }
}

// flood finds where a broadcast or multicast frame goes; member, when not nil, says which
// local ports it is for, and admit, likewise, which of them may have it.
func (t *tables) flood(from origin, member func(string) bool, admit func(*desired.Port) bool) Verdict {
	var v Verdict
	denied := false
	for name, port := range t.ports {
		if port.Network != from.net.ID || port == from.port || member != nil && !member(name) {
			continue
		}
		if admit != nil && !admit(port) {
			denied = true
			continue
		}
		v.Ports = append(v.Ports, name)
	}
	slices.Sort(v.Ports)
	if from.port != nil {
		if from.net.Encap == model.EncapVLAN {
			v.Uplink, v.VLAN = true, from.net.Tag
		} else if len(from.net.VTEPs) > 0 {
			v.VTEPs, v.Network = from.net.VTEPs, from.net.ID
		}
	}
	if len(v.Ports) == 0 && !v.Uplink && len(v.VTEPs) == 0 {
		if denied {
			return dropped(driver.DropPolicy)
		}
		return dropped(driver.DropUnknownDest)
	}
	return v
}

// forward judges an IP packet.
func (k *kernel) forward(from origin, p *Packet) Verdict { return k.forwardBy(from, p, nil) }

// forwardBy judges an IP packet that goes where back says, to a client outside; nil =
// where it is addressed to.
func (k *kernel) forwardBy(from origin, p *Packet, back *Verdict) Verdict {
	t := k.tables
	if from.port != nil && from.port.Identity == model.IdentityUnknown && from.net.Encap == model.EncapVXLAN {
		return dropped(driver.DropUnknownSource)
	}
	var v Verdict
	outside := from.host || from.by.IsValid() || back != nil
	byRouter := !outside && t.toRouter(from, p)
	if byRouter { // the router drops what it does not take before any policy is asked
		if v, outside = t.byRouter(from, p); !v.Passed() {
			return v
		}
	}
	orig, ok := k.conns.classify(from.net, p, from.port != nil)
	if !ok {
		return dropped(driver.DropInvalid)
	}
	was, old := k.conns.conns[orig]
	defer func() {
		if old || p.DstMAC.Multicast() { // asides are of connections that begin
			t.auditEvents = nil
		}
	}()
	var rules []string
	if p.DstMAC.Multicast() {
		grouped := desired.IsMulticastMember(p.Dst)
		if t.arpMode != model.ArpFlood && !grouped {
			return dropped(driver.DropUnknownDest)
		}
		if from.port != nil {
			pass, rule := t.judge(from.port, model.Out, t.peerAt(from.net, orig.dst), orig)
			if rules = appendRule(rules, rule); !pass {
				return Verdict{Drop: driver.DropPolicy, Rules: rules}
			}
		}
		var member func(string) bool
		if grouped {
			member = t.membersOf(from.net, p.Dst)
		}
		v = t.flood(from, member, func(port *desired.Port) bool {
			pass, rule := t.judge(port, model.In, t.peerAt(from.net, orig.src), orig)
			rules = appendRule(rules, rule)
			return pass
		})
		v.Rules = slices.Compact(slices.Sorted(slices.Values(rules)))
		if v.Passed() {
			k.conns.commit(orig, p, connectionState{network: from.net.ID})
		}
		return v
	}
	switch {
	case back != nil:
		v = *back
	case !byRouter:
		if v = t.deliver(from, p); !v.Passed() {
			return v
		}
	}
	// The connection is judged at both of its ends that are on this host, in its
	// own direction, whichever way the packet goes.
	ends := []struct {
		here, there netip.Addr
		dir         model.Direction
	}{{orig.src, orig.dst, model.Out}, {orig.dst, orig.src, model.In}}
	as := connectionState{outside: outside, network: t.peerAt(from.net, orig.src).Network, by: from.by, own: from.own}
	if from.port != nil {
		as.by = was.by
	}
	if from.port != nil || orig.src != p.Src || p.isError() || p.Frag != nil && p.Frag.Offset != 0 {
		as.own = was.own // which only what a client sends tells
	}
	for _, end := range ends {
		port := t.stations.byAddr(from.net, end.here).port
		if port == nil {
			continue
		}
		if end.dir == model.In {
			as.to = port.IfName
		}
		if as.own { // what the host itself begins is not asked about
			continue
		}
		other := t.peerAt(from.net, end.there)
		if outside {
			other.Identity = model.IdentityExternal
		}
		pass, rule := t.judge(port, end.dir, other, orig)
		if rule != "" && !pass {
			return Verdict{Drop: driver.DropPolicy, Rules: []string{rule}}
		}
		if !pass {
			return dropped(driver.DropPolicy)
		}
		rules = appendRule(rules, rule)
	}
	v.Rules = rules
	k.conns.commit(orig, p, as)
	return v
}

func appendRule(rules []string, id string) []string {
	if id == "" {
		return rules
	}
	return append(rules, id)
}

// peerAt is the peer that policy sees in an address that is used on a network.
func (t *tables) peerAt(n *desired.Network, a netip.Addr) desired.Peer {
	p := desired.Peer{Addr: a, Network: n.ID}
	if s := t.stations.byAddr(n, a); s.known() {
		p.Identity, p.Network = s.identity(), s.network()
	} else if n.Encap == model.EncapVLAN {
		p.Identity = model.IdentityExternal
	}
	return p
}

// judge applies a port's policy to a connection.
func (t *tables) judge(port *desired.Port, dir model.Direction, other desired.Peer, orig flow) (bool, string) {
	if port.Policies == 0 {
		return true, ""
	}
	set := t.sets[port.Policies]
	if set == nil {
		t.decisions = append(t.decisions, driver.Decision{Direction: dir})
		return false, "" // its rules are not in (any more)
	}
	end := driver.PolicyEndOf(driver.JudgedConnection{Direction: dir, Peer: other, Proto: orig.proto, Port: orig.dstPort}, set, t.set)
	said := end.Judge(set)
	t.decisions = append(t.decisions, driver.DecisionOf(dir, said))
	t.auditEvents = append(t.auditEvents, end.AuditEvents(said)...)
	return said.Pass, said.RuleID()
}

// size is how many bytes a packet counts.
func (p *Packet) size() uint64 { return uint64(cmp.Or(p.Bytes, 64)) }

func (k *kernel) count(p *Packet, v *Verdict) {
	n := p.size()
	if v.Drop != "" {
		k.drops[v.Drop]++
	}
	for _, id := range v.Rules {
		r := k.rules[id]
		if r == nil {
			r = &driver.RuleStats{}
			k.rules[id] = r
		}
		r.Packets++
		r.Bytes += n
	}
	port := func(name string) *driver.PortStats {
		s := k.ports[name]
		if s == nil {
			s = &driver.PortStats{}
			k.ports[name] = s
		}
		return s
	}
	if k.tables.ports[p.Port] != nil {
		s := port(p.Port)
		s.TxPackets++
		s.TxBytes += n
		if v.Answer != nil {
			s.RxPackets++
			s.RxBytes += n
		}
	}
	for _, name := range v.Ports {
		s := port(name)
		s.RxPackets++
		s.RxBytes += n
	}
}
