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

// header is the part of a desired state that is no object of its own.
type header struct {
	name    model.HostName
	vtep    netip.Addr
	fwdMode model.FwdMode
	arpMode model.ArpMode
	way     desired.HostNAT // zero = none
	tunnels desired.Map[netip.Addr, model.HostName]
	nodes   desired.Map[netip.Addr, netip.Addr]
	shared  desired.Map[netip.Addr, struct{}] // nodes' addresses at which services have frontends
	groups  desired.Map[desired.GroupKey, *desired.Group]
}

// tables are the indexes that packets are looked up in.
type tables struct {
	header
	stations  *stationTable
	networks  map[model.NetworkID]*desired.Network
	byVLAN    map[uint32]*desired.Network
	sets      map[desired.PolicySetID]*desired.PolicySet
	ports     map[string]*desired.Port
	joined    groups[desired.Domain, *desired.Network]
	natives   map[*desired.Network]struct{}
	services  map[model.ServiceKey]*desired.Service
	vips      groups[netip.Addr, model.ServiceKey] // who wants an address, of any domain
	frontends groups[netip.Addr, model.ServiceKey] // who has some frontend there
	private   *desired.HostNAT                     // nil = none
	byPrivate map[netip.Addr]*desired.Port

	decisions   []driver.Decision  // of the packet under way, in order
	auditEvents []driver.FlowEvent // what else is to be told of it
}

func newTables(o objects) *tables {
	return &tables{
		stations: &stationTable{networks: o.networks, remotes: o.remotes, portMACs: map[desired.RemoteKey]*desired.Port{}, addrs: map[addrKey]station{}},
		networks: o.networks, sets: o.sets, ports: o.ports, services: o.services, vips: groups[netip.Addr, model.ServiceKey]{}, frontends: groups[netip.Addr, model.ServiceKey]{},
		byVLAN: map[uint32]*desired.Network{}, joined: groups[desired.Domain, *desired.Network]{},
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
		t.stations.setRemote(nil, r)
	}
	for _, p := range o.ports { // after remotes, whose addresses they may take over
		t.setPort(nil, p)
	}
	for _, s := range o.services {
		t.setService(nil, s)
	}
	t.stations.was = map[addrKey]station{}
	return t
}

func (t *tables) setHeader(h header) {
	t.header, t.private = h, nil
	if h.way != (desired.HostNAT{}) {
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

func (t *tables) setPort(old, now *desired.Port) {
	t.stations.setPort(old, now)
	if old != nil {
		for _, a := range []netip.Addr{old.Private, old.Private6} {
			if t.byPrivate[a] == old {
				delete(t.byPrivate, a)
			}
		}
	}
	if now != nil {
		for _, a := range []netip.Addr{now.Private, now.Private6} {
			if a.IsValid() {
				t.byPrivate[a] = now
			}
		}
	}
}

// forgetGone drops the connections of addresses whose owner is gone or has changed.
func (k *kernel) forgetGone(was map[addrKey]station) {
	for a, old := range was {
		now := k.tables.stations.at(a)
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
	if w := o.header.way; w != (desired.HostNAT{}) {
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
