package reference

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// header is the part of a picture that is no object of its own.
type header struct {
	name    model.HostName
	vtep    netip.Addr
	fwdMode model.FwdMode
	arpMode model.ArpMode
	way     desired.Private // zero = none
	tunnels desired.Map[netip.Addr, model.HostName]
	nodes   desired.Map[netip.Addr, netip.Addr]
	shared  desired.Map[netip.Addr, struct{}] // nodes' addresses at which services have faces
	groups  desired.Map[desired.GroupKey, *desired.Group]
}

// tables are the indexes that packets are looked up in.
type tables struct {
	header
	networks  map[model.NetworkID]*desired.Network
	byVLAN    map[uint32]*desired.Network
	sets      map[desired.PolicySetID]*desired.PolicySet
	ports     map[string]*desired.Port
	remotes   map[desired.RemoteKey]*desired.Remote
	portMACs  map[desired.RemoteKey]*desired.Port
	joined    groups[desired.Domain, *desired.Network]
	natives   map[*desired.Network]struct{}
	addrs     map[addrKey]station // link-local addresses of IPv6 excepted, which follow from MACs
	services  map[model.ServiceKey]*desired.Service
	vips      groups[netip.Addr, model.ServiceKey] // who wants an address, of any domain
	frontends groups[netip.Addr, model.ServiceKey] // who has some face there
	private   *desired.Private                     // nil = none
	byPrivate map[netip.Addr]*desired.Port

	was map[addrKey]station // owners of changed addresses before the current Apply; nil = not recorded

	decisions   []driver.Decision  // of the packet under way, in order
	auditEvents []driver.FlowEvent // what else is to be told of it
}

// addrKey names an address in a domain; a link-local one, which is no router's
// affair, in its network, as if that were joined to none.
type addrKey struct {
	domain desired.Domain
	addr   netip.Addr
}

// spaceOf is where addresses that a packet on a network has are kept together.
func spaceOf(n *desired.Network, addrs ...netip.Addr) desired.Domain {
	for _, a := range addrs {
		if a.Is6() && a.IsLinkLocalUnicast() {
			return desired.Domain(n.ID)
		}
	}
	return n.Domain()
}

// station is an endpoint known on a network: a local port, or a remote one.
type station struct {
	port   *desired.Port
	remote *desired.Remote
}

func (s station) known() bool { return s != station{} }

// mac is zero of a station that is not known; so is identity.
func (s station) mac() model.MAC {
	switch {
	case s.port != nil:
		return s.port.MAC
	case s.remote != nil:
		return s.remote.MAC
	}
	return model.MAC{}
}

func (s station) identity() model.Identity {
	switch {
	case s.port != nil:
		return s.port.Identity
	case s.remote != nil:
		return s.remote.Identity
	}
	return 0
}

// network is 0 of a station that is not known.
func (s station) network() model.NetworkID {
	switch {
	case s.port != nil:
		return s.port.Network
	case s.remote != nil:
		return s.remote.Network
	}
	return 0
}

// byMAC finds who has a MAC: a port before a remote, while there are both.
func (t *tables) byMAC(n model.NetworkID, mac model.MAC) station {
	k := desired.RemoteKey{Network: n, MAC: mac}
	if p := t.portMACs[k]; p != nil {
		return station{port: p}
	}
	return station{remote: t.remotes[k]}
}

// byAddr finds who has an address that is used on a network: on any of its domain.
func (t *tables) byAddr(n *desired.Network, a netip.Addr) station {
	return t.at(addrKey{spaceOf(n, a), a})
}

// onNetwork is byAddr for stations on this very network, not elsewhere in its
// domain.
func (t *tables) onNetwork(n *desired.Network, a netip.Addr) station {
	if s := t.byAddr(n, a); s.network() == n.ID {
		return s
	}
	return station{}
}

func (t *tables) at(k addrKey) station {
	if s := t.addrs[k]; s.known() || !k.addr.Is6() {
		return s
	}
	b := k.addr.As16() // the reverse of MAC.LinkLocal
	mac := model.MAC{b[8] ^ 2, b[9], b[10], b[13], b[14], b[15]}
	if mac.LinkLocal() != k.addr {
		return station{}
	}
	return t.byMAC(model.NetworkID(k.domain), mac)
}

func newTables(o objects) *tables {
	return &tables{
		networks: o.networks, sets: o.sets, ports: o.ports, remotes: o.remotes, services: o.services, vips: groups[netip.Addr, model.ServiceKey]{}, frontends: groups[netip.Addr, model.ServiceKey]{},
		byVLAN: map[uint32]*desired.Network{}, joined: groups[desired.Domain, *desired.Network]{}, portMACs: map[desired.RemoteKey]*desired.Port{}, addrs: map[addrKey]station{},
		byPrivate: map[netip.Addr]*desired.Port{}, natives: map[*desired.Network]struct{}{},
	}
}

// index builds the indexes of objects.
func index(o objects) *tables {
	t := newTables(o)
	t.setHeader(o.header)
	for _, n := range o.networks {
		t.setNetwork(nil, n)
	}
	for _, r := range o.remotes {
		t.setRemote(nil, r)
	}
	for _, p := range o.ports { // after remotes, whose addresses they may take over
		t.setPort(nil, p)
	}
	for _, s := range o.services {
		t.setService(nil, s)
	}
	t.was = map[addrKey]station{}
	return t
}

func (t *tables) setHeader(h header) {
	t.header, t.private = h, nil
	if h.way != (desired.Private{}) {
		t.private = &h.way
	}
}

// The following bring the indexes from an old object to the one that replaces it;
// nil = there is none. Entries that another object has taken meanwhile stay.

func (t *tables) setNetwork(old, now *desired.Network) {
	if old != nil {
		delete(t.natives, old)
		t.joined.remove(old.Domain(), old)
		if t.byVLAN[old.Tag] == old {
			delete(t.byVLAN, old.Tag)
		}
	}
	if now != nil && now.Joined != 0 {
		t.joined.add(now.Domain(), now)
	}
	if now != nil && now.Routed {
		t.natives[now] = struct{}{}
	}
	if now != nil && now.Encap == model.EncapVLAN {
		t.byVLAN[now.Tag] = now
	}
}

func (t *tables) setRemote(old, now *desired.Remote) {
	if old != nil {
		t.note(old.Network, old.MAC.LinkLocal())
		t.remove(old.Network, station{remote: old}, old.IPv4, old.IPv6)
	}
	if now != nil {
		t.note(now.Network, now.MAC.LinkLocal())
		t.add(now.Network, station{remote: now}, now.IPv4, now.IPv6)
	}
}

func (t *tables) setPort(old, now *desired.Port) {
	if old != nil {
		t.note(old.Network, old.MAC.LinkLocal())
		t.remove(old.Network, station{port: old}, old.IPv4, old.IPv6)
		if k := (desired.RemoteKey{Network: old.Network, MAC: old.MAC}); t.portMACs[k] == old {
			delete(t.portMACs, k)
		}
		for _, a := range []netip.Addr{old.Private, old.Private6} {
			if t.byPrivate[a] == old {
				delete(t.byPrivate, a)
			}
		}
	}
	if now != nil {
		t.note(now.Network, now.MAC.LinkLocal())
		t.add(now.Network, station{port: now}, now.IPv4, now.IPv6)
		t.portMACs[desired.RemoteKey{Network: now.Network, MAC: now.MAC}] = now
		for _, a := range []netip.Addr{now.Private, now.Private6} {
			if a.IsValid() {
				t.byPrivate[a] = now
			}
		}
	}
}

func (t *tables) add(n model.NetworkID, s station, addrs ...netip.Addr) {
	for _, a := range addrs {
		if a.IsValid() {
			t.note(n, a)
			t.addrs[t.key(n, a)] = s
		}
	}
}

// key is the key of a station's address on a network.
func (t *tables) key(id model.NetworkID, a netip.Addr) addrKey {
	n := t.networks[id]
	if n == nil { // refused, or gone by half
		n = &desired.Network{ID: id}
	}
	return addrKey{spaceOf(n, a), a}
}

func (t *tables) remove(n model.NetworkID, s station, addrs ...netip.Addr) {
	for _, a := range addrs {
		if k := t.key(n, a); t.addrs[k] == s {
			t.note(n, a)
			delete(t.addrs, k)
		}
	}
}

// note remembers whose an address was before this Apply.
func (t *tables) note(n model.NetworkID, a netip.Addr) {
	k := t.key(n, a)
	if _, noted := t.was[k]; !noted && t.was != nil {
		t.was[k] = t.at(k)
	}
}

// forgetGone drops the connections of addresses whose owner is gone or has changed.
func (k *kernel) forgetGone(was map[addrKey]station) {
	for a, old := range was {
		now := k.tables.at(a)
		if old.known() && (old.mac() != now.mac() || (old.port == nil) != (now.port == nil)) {
			k.conns.forget(a)
			k.conns.forget(addrKey{desired.Domain(old.network()), a.addr}) // with link-local ones
			k.addressChanged(a.addr)
		}
	}
}

// Inspect implements driver.Driver: the data plane as text, one object a line, sorted.
func (d *Driver) Inspect(context.Context) (string, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	var lines []string
	o := d.k.objects
	for id, n := range o.networks {
		lines = append(lines, fmt.Sprintf("%s %s %s %d subnets %s %s gateways %s %s vteps %v router %d%s",
			networkName(id), n.Key, n.Encap, n.Tag, addrText(n.Subnet), addrText(n.Subnet6), addrText(n.Gateway), addrText(n.Gateway6), n.VTEPs, n.Joined, nativeText(n)))
	}
	for name, p := range o.ports {
		lines = append(lines, fmt.Sprintf("%s network %d %s %s %s identity %d policy %d endpoint %s%s",
			portName(name), p.Network, p.MAC, addrText(p.IPv4), addrText(p.IPv6), p.Identity, p.Policies, p.Endpoint, privateText(p)))
	}
	for key, r := range o.remotes {
		lines = append(lines, fmt.Sprintf("%s %s %s identity %d vtep %s",
			remoteName(key), addrText(r.IPv4), addrText(r.IPv6), r.Identity, addrText(r.VTEP)))
	}
	for a, name := range o.header.tunnels.All() {
		lines = append(lines, fmt.Sprintf("tunnel %s of %s", a, name))
	}
	for a, vtep := range o.header.nodes.All() {
		lines = append(lines, fmt.Sprintf("node %s by %s", a, vtep))
	}
	for a := range o.header.shared.All() {
		lines = append(lines, fmt.Sprintf("node ports at %s", a))
	}
	for key, s := range o.services {
		lines = append(lines, serviceLines(serviceName(key), s)...)
	}
	for id, s := range o.sets {
		lines = append(lines, fmt.Sprintf("%s %s", setName(id), s.Name))
		for dir, tiers := range map[model.Direction][]desired.Tier{model.In: s.In, model.Out: s.Out} {
			for _, t := range tiers {
				for i, r := range t.Ordered() {
					lines = append(lines, fmt.Sprintf("%s %s tier %d rule %04d %s", setName(id), dir, t.Tier, i, ruleText(r)))
				}
				lines = append(lines, fmt.Sprintf("%s %s tier %d rule else %s", setName(id), dir, t.Tier, t.Default))
			}
		}
	}
	slices.Sort(lines)
	head := fmt.Sprintf("host %s vtep %s %s %s\n", o.header.name, addrText(o.header.vtep), o.header.fwdMode, o.header.arpMode)
	if w := o.header.way; w != (desired.Private{}) {
		head = strings.TrimSuffix(head, "\n") + fmt.Sprintf(" private %s %s host %s %s at %s router %s\n", addrText(w.Subnet), addrText(w.Subnet6), addrText(w.Addr), addrText(w.Addr6), w.Interface, w.RouterMAC)
	}
	if len(lines) == 0 {
		return head, nil
	}
	return head + strings.Join(lines, "\n") + "\n", nil
}

func addrText(a interface {
	IsValid() bool
	String() string
},
) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

func ruleText(r *desired.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", r.Priority, r.Action, r.ID)
	if r.AnyPeer {
		b.WriteString(" any")
	} else {
		fmt.Fprintf(&b, " identities %d", slices.Collect(r.Identities.All()))
		for _, c := range r.CIDRs {
			fmt.Fprintf(&b, " %s", c.Prefix)
			if len(c.Except) > 0 {
				fmt.Fprintf(&b, " except %v", c.Except)
			}
			if c.Network != 0 {
				fmt.Fprintf(&b, " on network %d", c.Network)
			}
		}
	}
	for _, m := range r.Ports {
		fmt.Fprintf(&b, " proto %d", m.Protocol)
		if m.Protocol.HasPorts() {
			fmt.Fprintf(&b, " %d-%d", m.Lo, m.Hi)
		}
	}
	return b.String()
}
