package ovs

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxEstablished is the number of tracked connections beyond which the switch is not asked
// to list them: in user space the thread that lists them also forwards.
const maxEstablished = 100_000

// reportEstablished has the running monitor, if there is one, report how the audits that were not
// reported yet would judge the established connections. Only then does the switch list the
// connections that it tracks in the zones concerned.
func (d *Driver) reportEstablished(ctx context.Context) {
	w := d.flows.watching
	if w == nil || w.done || len(d.pendingAudits) == 0 {
		return
	}
	missed := func(err error) {
		d.cfg.Log.Warn("the monitor misses established connections until the next change", "error", err)
	}
	here := newEndpointsByAddress(d.flows.pic.have)
	sets := d.pendingAudits.Sets()
	living, lost, err := d.listEstablished(ctx, here, func(id desired.PolicySetID) bool { return sets[id] })
	if err != nil {
		missed(err)
		return
	}
	if lost > 0 {
		w.queue.AddLost(lost)
	}
	w.established.Add(living, d.pendingAudits, func(a driver.ConnectionGroup) []driver.PolicyEnd { return d.policyEndpoints(here, a) })
	d.pendingAudits = driver.PendingAudits{}
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Established implements driver.ConnectionLister.
func (d *Driver) Established(ctx context.Context) (driver.EstablishedConnections, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns.sw == nil {
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: the switch does not answer")
	}
	living, lost, err := d.listEstablished(ctx, newEndpointsByAddress(d.flows.pic.have), func(desired.PolicySetID) bool { return true })
	switch {
	case err != nil:
		return nil, fmt.Errorf("open vswitch: list established connections: %w", err)
	case lost > 0:
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: it tracks %d connections, and lists at most %d", lost, d.daemon.listable)
	}
	return living, nil
}

// listEstablished lists the connections in the domains of ports whose policy set concerns the caller. lost
// are connections that are too many to be listed.
func (d *Driver) listEstablished(ctx context.Context, here *endpointsByAddress, concerns func(desired.PolicySetID) bool) (living driver.EstablishedConnections, lost uint64, err error) {
	living = driver.EstablishedConnections{}
	full, err := d.daemon.conntrack(ctx)
	if err != nil || full.Entries > d.daemon.listable {
		return living, full.Entries, err
	}
	for domain := range here.domains(concerns) {
		text, err := control(ctx, d.cfg.RunDir, "dpctl/dump-conntrack", d.daemon.datapath(), fmt.Sprint("zone=", zoneOf(domain)))
		if err != nil {
			return living, 0, err
		}
		for line := range strings.Lines(text) {
			if c, ok := readTracked(line); ok {
				here.count(living, domain, c)
			}
		}
	}
	return living, 0, nil
}

// policyEndpoints are the ends here of connections that live.
func (d *Driver) policyEndpoints(here *endpointsByAddress, a driver.ConnectionGroup) []driver.PolicyEnd {
	d.mu.Lock()
	defer d.mu.Unlock()
	in := func(id desired.PolicySetID) *desired.PolicySet {
		s, ok := here.host.PolicySets.Get(id)
		if !ok || d.flows.pic.policies.closed[id] != nil {
			return nil
		}
		return s
	}
	return a.PolicyEnds(func(name string) *desired.PolicySet {
		if p, local := here.host.Ports.Get(name); local {
			return in(p.Policies)
		}
		return nil
	}, func(ip netip.Addr) desired.Peer { return here.peer(a.Network, ip) }, in)
}

// endpointsByAddress are the endpoints of a desired state by address.
type endpointsByAddress struct {
	host desired.Host
	at   map[domainAddress]endpointAt
}

type domainAddress struct {
	domain desired.Domain
	addr   netip.Addr
}

type endpointAt struct {
	network  model.NetworkID
	identity model.Identity
	port     string // "" = on another host
}

func newEndpointsByAddress(h desired.Host) *endpointsByAddress {
	r := &endpointsByAddress{h, map[domainAddress]endpointAt{}}
	put := func(id model.NetworkID, mac model.MAC, v4, v6 netip.Addr, who endpointAt) {
		n, ok := h.Networks.Get(id)
		if !ok {
			return
		}
		who.network = id
		for _, a := range []netip.Addr{v4, v6, mac.LinkLocal()} {
			if a.IsValid() {
				r.at[domainAddress{n.Domain(), a}] = who
			}
		}
	}
	for _, e := range h.Remotes.All() {
		put(e.Network, e.MAC, e.IPv4, e.IPv6, endpointAt{identity: e.Identity})
	}
	for name, p := range h.Ports.All() {
		put(p.Network, p.MAC, p.IPv4, p.IPv6, endpointAt{identity: p.Identity, port: name})
	}
	return r
}

// domains are the domains of the ports whose sets concern the caller.
func (r *endpointsByAddress) domains(concerns func(desired.PolicySetID) bool) map[desired.Domain]bool {
	out := map[desired.Domain]bool{}
	for _, p := range r.host.Ports.All() {
		if n, ok := r.host.Networks.Get(p.Network); ok && concerns(p.Policies) {
			out[n.Domain()] = true
		}
	}
	return out
}

// count adds a connection if one of its ends is a port here.
func (r *endpointsByAddress) count(living driver.EstablishedConnections, domain desired.Domain, c tracked) {
	from, to := r.at[domainAddress{domain, c.src}], r.at[domainAddress{domain, c.dst}]
	if from.port == "" && to.port == "" {
		return
	}
	living.Add(driver.ConnectionGroup{
		Network: cmp.Or(from.network, to.network), Src: c.src, Dst: c.dst, Proto: c.proto, DstPort: c.dstPort,
		Routed: c.translated, From: from.port, To: to.port,
	}, c.srcPort)
}

// peer is whom policy takes an address for when it is seen on a network.
func (r *endpointsByAddress) peer(id model.NetworkID, ip netip.Addr) desired.Peer {
	p := desired.Peer{Addr: ip, Network: id}
	n, ok := r.host.Networks.Get(id)
	if !ok {
		return p
	}
	if who, known := r.at[domainAddress{n.Domain(), ip}]; known {
		p.Identity, p.Network = who.identity, who.network
	} else if n.Encap == model.EncapVLAN {
		p.Identity = model.IdentityExternal
	}
	return p
}

// tracked is a connection as containers see it, in its original direction.
type tracked struct {
	proto            model.Protocol
	src, dst         netip.Addr
	srcPort, dstPort uint16 // of protocols with ports
	translated       bool   // it goes by the host
}

// trackedProtocols are the protocols that the switch tracks, by their names in its
// lists.
var trackedProtocols = map[string]model.Protocol{
	"tcp": model.ProtoTCP, "udp": model.ProtoUDP, "sctp": model.ProtoSCTP, "icmp": model.ProtoICMP, "icmpv6": model.ProtoICMPv6,
}

// readTracked reads a line of dpctl/dump-conntrack (ovs-dpctl(8)), such as
// "tcp,orig=(src=10.1.1.2,dst=10.1.1.3,sport=1,dport=80),reply=(...),zone=7". ok is false
// when the line is no connection that can be reported.
func readTracked(line string) (c tracked, ok bool) {
	name, rest, _ := strings.Cut(line, ",")
	c.proto, ok = trackedProtocols[name]
	orig, rest, ok2 := tupleOf(rest, "orig=(")
	reply, _, ok3 := tupleOf(rest, "reply=(")
	if !ok || !ok2 || !ok3 {
		return c, false
	}
	// One end's address may be translated. Containers see the source as it was sent,
	// and the destination that replies come from.
	c.src, c.dst, c.srcPort, c.dstPort = orig.src, reply.src, orig.sport, orig.dport
	c.translated = orig.src != reply.dst || orig.dst != reply.src
	return c, true
}

type tuple struct {
	src, dst     netip.Addr
	sport, dport uint16
}

// tupleOf reads the addresses and ports between prefix and the next bracket.
func tupleOf(s, prefix string) (t tuple, rest string, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimPrefix(s, ","), prefix)
	in, rest, closed := strings.Cut(s, ")")
	if !ok || !closed {
		return t, rest, false
	}
	for field := range strings.SplitSeq(in, ",") {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch name {
		case "src":
			t.src, err = netip.ParseAddr(value)
		case "dst":
			t.dst, err = netip.ParseAddr(value)
		case "sport":
			t.sport, err = port(value)
		case "dport":
			t.dport, err = port(value)
		}
		if err != nil {
			return t, rest, false
		}
	}
	return t, rest, t.src.IsValid() && t.dst.IsValid()
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}
