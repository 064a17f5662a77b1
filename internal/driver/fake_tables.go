package driver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// header is the part of a picture that is no object of its own.
type header struct {
	name    model.HostName
	vtep    netip.Addr
	fwdMode model.FwdMode
	arpMode model.ArpMode
	way     desired.Private // zero = none
}

// tables are the indexes that packets are looked up in.
type tables struct {
	header
	networks  map[model.NetworkID]*desired.Network
	byVLAN    map[uint32]*desired.Network
	sets      map[desired.PolicySetID]*desired.PolicySet
	ports     map[string]*desired.Port
	byMAC     map[desired.RemoteKey]station
	byAddr    map[addrKey]station
	private   *desired.Private // nil = none
	byPrivate map[netip.Addr]*desired.Port

	decisions []Decision // of the packet under way, in order
}

type addrKey struct {
	network model.NetworkID
	addr    netip.Addr
}

// station is an endpoint known on a network: a local port, or a remote one.
type station struct {
	port     *desired.Port // nil when remote
	mac      model.MAC
	identity model.Identity
	vtep     netip.Addr
}

func index(o objects) *tables {
	t := &tables{
		header: o.header, networks: o.networks, sets: o.sets, ports: o.ports,
		byVLAN: map[uint32]*desired.Network{}, byMAC: map[desired.RemoteKey]station{}, byAddr: map[addrKey]station{},
		byPrivate: indexPrivate(o),
	}
	if o.header.way != (desired.Private{}) {
		t.private = &o.header.way
	}
	for _, n := range o.networks {
		if n.Encap == model.EncapVLAN {
			t.byVLAN[n.Tag] = n
		}
	}
	add := func(n model.NetworkID, s station, addrs ...netip.Addr) {
		t.byMAC[desired.RemoteKey{Network: n, MAC: s.mac}] = s
		for _, a := range append(addrs, LinkLocal(s.mac)) {
			if a.IsValid() {
				t.byAddr[addrKey{n, a}] = s
			}
		}
	}
	for _, r := range o.remotes {
		add(r.Network, station{mac: r.MAC, identity: r.Identity, vtep: r.VTEP}, r.IPv4, r.IPv6)
	}
	for _, p := range o.ports {
		add(p.Network, station{port: p, mac: p.MAC, identity: p.Identity}, p.IPv4, p.IPv6)
	}
	return t
}

// accept checks a picture as a kernel would and returns the objects to be
// written; what it refuses is in the report.
func (k *fakeKernel) accept(want desired.Host) (objects, Report) {
	o := noObjects()
	o.header = header{name: want.Name, vtep: want.VTEP, fwdMode: want.FwdMode, arpMode: want.ArpMode}
	if want.Private != nil {
		o.header.way = *want.Private
	}
	report := Report{Revision: want.Revision, Ports: map[string]PortStatus{}}
	problem := func(object string, err error) {
		report.Problems = append(report.Problems, Problem{object, err})
	}
	tags := map[string]model.NetworkID{}
	networks := maps.Collect(want.Networks.All())
	for _, id := range slices.Sorted(maps.Keys(networks)) {
		n := networks[id]
		if err := checkNetwork(id, n, want.VTEP, tags); err != nil {
			problem(networkName(id), err)
			continue
		}
		o.networks[id] = n
	}
	for id, s := range want.PolicySets.All() {
		if id == 0 || s.ID != id {
			problem(setName(id), model.Errorf(model.ErrInvalid, "policy set %d calls itself %d", id, s.ID))
			continue
		}
		o.sets[id] = s
	}
	taken := map[addrKey]string{}
	macs := map[desired.RemoteKey]string{}
	claim := func(n model.NetworkID, mac model.MAC, who string, addrs ...netip.Addr) error {
		if o.networks[n] == nil {
			return model.Errorf(model.ErrNotFound, "network %d does not exist", n)
		}
		if multicast(mac) || mac == (model.MAC{}) {
			return model.Errorf(model.ErrInvalid, "MAC %s is not a station's", mac)
		}
		if other, dup := macs[desired.RemoteKey{Network: n, MAC: mac}]; dup {
			return model.Errorf(model.ErrExists, "MAC %s is %s's", mac, other)
		}
		for i, a := range addrs {
			if !a.IsValid() {
				continue
			}
			if a.Is4() != (i == 0) {
				return model.Errorf(model.ErrInvalid, "address %s is of the wrong family", a)
			}
			if other, dup := taken[addrKey{n, a}]; dup {
				return model.Errorf(model.ErrExists, "address %s is %s's", a, other)
			}
		}
		macs[desired.RemoteKey{Network: n, MAC: mac}] = who
		for _, a := range addrs {
			if a.IsValid() {
				taken[addrKey{n, a}] = who
			}
		}
		return nil
	}
	privates := map[netip.Addr]string{}
	ports := maps.Collect(want.Ports.All())
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		p := ports[name]
		err := k.checkPort(name, p, o.sets)
		if err == nil {
			err = claim(p.Network, p.MAC, portName(name), p.IPv4, p.IPv6)
		}
		if err == nil {
			err = checkPrivate(want.Private, p, privates)
		}
		report.Ports[name] = PortStatus{Err: err}
		if err == nil {
			o.ports[name] = p
		}
	}
	remotes := maps.Collect(want.Remotes.All())
	for _, key := range slices.SortedFunc(maps.Keys(remotes), func(a, b desired.RemoteKey) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), slices.Compare(a.MAC[:], b.MAC[:]))
	}) {
		r := remotes[key]
		err := claim(r.Network, r.MAC, remoteName(key), r.IPv4, r.IPv6)
		if err == nil && o.networks[r.Network].Encap == model.EncapVXLAN && !r.VTEP.IsValid() {
			err = model.Errorf(model.ErrInvalid, "its host has no tunnel endpoint")
		}
		if err != nil {
			problem(remoteName(key), err)
			continue
		}
		o.remotes[key] = r
	}
	return o, report
}

func checkNetwork(id model.NetworkID, n *desired.Network, vtep netip.Addr, tags map[string]model.NetworkID) error {
	limit := uint32(model.MaxVNI)
	if n.Encap == model.EncapVLAN {
		limit = model.MaxVLAN
	} else if n.Encap != model.EncapVXLAN {
		return model.Errorf(model.ErrInvalid, "encapsulation %q is not known", n.Encap)
	}
	switch {
	case id == 0 || n.ID != id:
		return model.Errorf(model.ErrInvalid, "network %d calls itself %d", id, n.ID)
	case n.Tag == 0 || n.Tag > limit:
		return model.Errorf(model.ErrInvalid, "%s tag %d is not between 1 and %d", n.Encap, n.Tag, limit)
	case n.Encap == model.EncapVXLAN && !vtep.IsValid():
		return model.Errorf(model.ErrInvalid, "this host has no tunnel endpoint")
	}
	key := fmt.Sprint(n.Encap, n.Tag)
	if other, dup := tags[key]; dup {
		return model.Errorf(model.ErrExists, "%s tag %d is network %d's", n.Encap, n.Tag, other)
	}
	tags[key] = id
	return nil
}

func (k *fakeKernel) checkPort(name string, p *desired.Port, sets map[desired.PolicySetID]*desired.PolicySet) error {
	switch {
	case name == "" || len(name) > 15 || strings.ContainsAny(name, "/ \t\n") || name != p.IfName:
		return model.Errorf(model.ErrInvalid, "interface name %q must be 1-15 bytes without slash or space", p.IfName)
	case k.hasIface != nil && !k.hasIface(name):
		return model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
	case p.Policies != 0 && sets[p.Policies] == nil:
		return model.Errorf(model.ErrNotFound, "policy set %d does not exist", p.Policies)
	}
	return nil
}

// forgetGone drops the connections of addresses that were somebody's before and
// are nobody's, or somebody else's, now.
func (k *fakeKernel) forgetGone(before *tables) {
	gone := func(n model.NetworkID, a netip.Addr) bool {
		old, was := before.byAddr[addrKey{n, a}]
		now, is := k.tables.byAddr[addrKey{n, a}]
		return was && (!is || old.mac != now.mac || (old.port == nil) != (now.port == nil))
	}
	for f := range k.conns.conns {
		if gone(f.network, f.src) || gone(f.network, f.dst) {
			delete(k.conns.conns, f)
		}
	}
	for key := range k.conns.frags {
		if gone(key.network, key.src) || gone(key.network, key.dst) {
			delete(k.conns.frags, key)
		}
	}
}

// Inspect implements Driver: the data plane as text, one object a line, sorted.
func (f *Fake) Inspect(context.Context) (string, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	var lines []string
	o := f.k.objects
	for id, n := range o.networks {
		lines = append(lines, fmt.Sprintf("%s %s %s %d subnets %s %s gateways %s %s vteps %v",
			networkName(id), n.Key, n.Encap, n.Tag, addrText(n.Subnet), addrText(n.Subnet6), addrText(n.Gateway), addrText(n.Gateway6), n.VTEPs))
	}
	for name, p := range o.ports {
		lines = append(lines, fmt.Sprintf("%s network %d %s %s %s identity %d policy %d endpoint %s%s",
			portName(name), p.Network, p.MAC, addrText(p.IPv4), addrText(p.IPv6), p.Identity, p.Policies, p.Endpoint, privateText(p.Private)))
	}
	for key, r := range o.remotes {
		lines = append(lines, fmt.Sprintf("%s %s %s identity %d vtep %s",
			remoteName(key), addrText(r.IPv4), addrText(r.IPv6), r.Identity, addrText(r.VTEP)))
	}
	for id, s := range o.sets {
		lines = append(lines, fmt.Sprintf("%s %s", setName(id), s.Name))
		for dir, tiers := range map[model.Direction][]desired.Tier{model.In: s.In, model.Out: s.Out} {
			for _, t := range tiers {
				for i, r := range t.Rules {
					lines = append(lines, fmt.Sprintf("%s %s tier %d rule %04d %s", setName(id), dir, t.Tier, i, ruleText(r)))
				}
				lines = append(lines, fmt.Sprintf("%s %s tier %d rule else %s", setName(id), dir, t.Tier, t.Default))
			}
		}
	}
	slices.Sort(lines)
	head := fmt.Sprintf("host %s vtep %s %s %s\n", o.header.name, addrText(o.header.vtep), o.header.fwdMode, o.header.arpMode)
	if w := o.header.way; w != (desired.Private{}) {
		head = strings.TrimSuffix(head, "\n") + fmt.Sprintf(" private %s host %s at %s router %s\n", w.Subnet, w.Addr, w.Interface, w.RouterMAC)
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

func ruleText(r desired.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", r.Priority, r.Action, r.ID)
	if r.AnyPeer {
		b.WriteString(" any")
	} else {
		fmt.Fprintf(&b, " identities %d", r.Identities)
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
