package reference

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// desiredStates judges desired states as a kernel would: which objects of the newest one are
// refused and why, as a function of that desired state alone, at the cost of the
// differences from the one before. Of two objects that claim the same MAC or address the
// first has it, ports before remotes, each in the order of their keys.
type desiredStates struct {
	want    desired.Host
	refused map[any]error       // by key: network id, policy set id, port's name, desired.RemoteKey
	absent  map[string]struct{} // ports whose interface is missing
	status  desired.Map[string, *driver.PortStatus]
	list    []driver.Problem // of what is refused, ports excepted; nil = to be made

	portMACs map[desired.RemoteKey]string // the port that has a MAC; a remote has the MAC in its key
	addrs    map[addrKey]station          // who has an address
	privates map[netip.Addr]claimant
	// refusedBy are the objects that were refused because others have what they claim,
	// by each thing that they claim.
	refusedBy map[any]map[claimant]struct{}

	// What a network's or a policy set's coming and going concerns.
	tags      groups[networkTag, model.NetworkID]
	remotesOn groups[model.NetworkID, model.MAC]
	portsOn   groups[model.NetworkID, string]
	portsWith groups[desired.PolicySetID, string]

	servicesOn groups[model.NetworkID, model.ServiceKey]
}

// groups are sets by key.
type groups[K, V comparable] map[K]map[V]struct{}

func (g groups[K, V]) add(k K, v V) {
	if g[k] == nil {
		g[k] = map[V]struct{}{}
	}
	g[k][v] = struct{}{}
}

func (g groups[K, V]) remove(k K, v V) {
	if delete(g[k], v); len(g[k]) == 0 {
		delete(g, k)
	}
}

func newDesiredStates(want desired.Host) *desiredStates {
	return &desiredStates{
		want:    desired.Host{Name: want.Name, VTEP: want.VTEP, HostNAT: want.HostNAT},
		refused: map[any]error{}, absent: map[string]struct{}{},
		portMACs: map[desired.RemoteKey]string{}, addrs: map[addrKey]station{}, privates: map[netip.Addr]claimant{},
		refusedBy: map[any]map[claimant]struct{}{},
		tags:      groups[networkTag, model.NetworkID]{}, remotesOn: groups[model.NetworkID, model.MAC]{},
		portsOn: groups[model.NetworkID, string]{}, portsWith: groups[desired.PolicySetID, string]{},
		servicesOn: groups[model.NetworkID, model.ServiceKey]{},
	}
}

// changedObjects are the objects that may have to be written.
type changedObjects struct {
	networks  map[model.NetworkID]struct{}
	sets      map[desired.PolicySetID]struct{}
	claimants map[claimant]struct{} // ports and remotes
	services  map[model.ServiceKey]struct{}
}

// isIncremental reports whether next can be judged by what differs: nothing that
// concerns all objects has changed, nor has a network gone over to another domain,
// which is a change of the mode for all of them.
func (p *desiredStates) isIncremental(next desired.Host) bool {
	if p == nil || p.want.VTEP != next.VTEP || p.want.HostNAT != next.HostNAT &&
		(p.want.HostNAT == nil || next.HostNAT == nil || *p.want.HostNAT != *next.HostNAT) {
		return false
	}
	for c := range next.Networks.Diff(p.want.Networks) {
		if c.Had && c.Has && c.Old.Joined != c.New.Joined {
			return false
		}
	}
	return true
}

// next judges the next desired state. It looks at the interfaces of new ports, of ports
// that had none and, with all, of all other ports.
func (p *desiredStates) next(want desired.Host, hasIface func(string) bool, all bool) changedObjects {
	t := changedObjects{map[model.NetworkID]struct{}{}, map[desired.PolicySetID]struct{}{}, map[claimant]struct{}{}, map[model.ServiceKey]struct{}{}}
	old := p.want
	p.want = want
	again := map[claimant]struct{}{} // to be judged, with other claimants of the same
	for c := range want.Ports.Diff(old.Ports) {
		again[portClaimant(c.Key)] = struct{}{}
		if c.Had {
			p.portsOn.remove(c.Old.Network, c.Key)
			p.portsWith.remove(c.Old.Policies, c.Key)
		}
		if c.Has {
			p.portsOn.add(c.New.Network, c.Key)
			p.portsWith.add(c.New.Policies, c.Key)
		}
	}
	for c := range want.Remotes.Diff(old.Remotes) {
		again[remoteClaimant(c.Key)] = struct{}{}
		if !c.Has {
			p.remotesOn.remove(c.Key.Network, c.Key.MAC)
		} else if !c.Had {
			p.remotesOn.add(c.Key.Network, c.Key.MAC)
		}
	}
	for name := range p.absent {
		if hasIface == nil || hasIface(name) {
			again[portClaimant(name)] = struct{}{}
		}
	}
	if all && hasIface != nil {
		for name := range want.Ports.All() {
			if _, absent := p.absent[name]; !absent && !hasIface(name) {
				again[portClaimant(name)] = struct{}{}
			}
		}
	}
	flipped := p.judgeNetworks(old, &t, again)
	p.judgeServices(old, &t, flipped)
	p.judgeSets(old, &t, again)
	p.judgeClaimants(old, hasIface, again)
	t.claimants = again
	return t
}

func (p *desiredStates) refuse(key any, err error) {
	if err == nil && p.refused[key] == nil {
		return
	}
	if p.list = nil; err == nil {
		delete(p.refused, key)
	} else {
		p.refused[key] = err
	}
}

// judgeNetworks judges the networks that came, went or changed their tag, and all
// others that want a tag which these have or had: the one with the lowest number
// has it.
func (p *desiredStates) judgeNetworks(old desired.Host, t *changedObjects, again map[claimant]struct{}) (flipped map[model.NetworkID]struct{}) {
	tags := map[networkTag]struct{}{}
	var gone []model.NetworkID
	for c := range p.want.Networks.Diff(old.Networks) {
		t.networks[c.Key] = struct{}{}
		if c.Had && c.Has && c.Old.ID == c.New.ID && tagOf(c.Old) == tagOf(c.New) {
			continue
		}
		if c.Had {
			p.tags.remove(tagOf(c.Old), c.Key)
			tags[tagOf(c.Old)] = struct{}{}
		}
		if c.Has {
			p.tags.add(tagOf(c.New), c.Key)
			tags[tagOf(c.New)] = struct{}{}
		} else {
			gone = append(gone, c.Key)
		}
	}
	flipped = map[model.NetworkID]struct{}{}
	for _, id := range gone {
		p.refuse(id, nil)
		flipped[id] = struct{}{}
	}
	for tag := range tags {
		has := map[networkTag]model.NetworkID{}
		for _, id := range slices.Sorted(maps.Keys(p.tags[tag])) {
			n, _ := p.want.Networks.Get(id)
			was := p.refused[id] == nil
			p.refuse(id, checkNetwork(id, n, p.want.VTEP, has))
			before, had := old.Networks.Get(id)
			if !had || was != (p.refused[id] == nil) || before.Encap != n.Encap {
				flipped[id] = struct{}{}
			}
		}
	}
	for id := range flipped {
		t.networks[id] = struct{}{}
		for name := range p.portsOn[id] {
			again[portClaimant(name)] = struct{}{}
		}
		for mac := range p.remotesOn[id] {
			again[remoteClaimant(desired.RemoteKey{Network: id, MAC: mac})] = struct{}{}
		}
	}
	return flipped
}

func (p *desiredStates) judgeSets(old desired.Host, t *changedObjects, again map[claimant]struct{}) {
	for c := range p.want.PolicySets.Diff(old.PolicySets) {
		t.sets[c.Key] = struct{}{}
		was := c.Had && p.refused[c.Key] == nil
		var err error
		if c.Has && (c.Key == 0 || c.New.ID != c.Key) {
			err = model.Errorf(model.ErrInvalid, "policy set %d has the id %d", c.Key, c.New.ID)
		}
		p.refuse(c.Key, err)
		if was == (c.Has && err == nil) {
			continue
		}
		for name := range p.portsWith[c.Key] {
			again[portClaimant(name)] = struct{}{}
		}
	}
}

func (p *desiredStates) judgePort(name string, hasIface func(string) bool) {
	delete(p.absent, name)
	c := portClaimant(name)
	port, ok := p.want.Ports.Get(name)
	if !ok {
		p.status = p.status.Delete(name)
		p.updateOwner(c, nil)
		return
	}
	err := p.checkPort(name, port, hasIface)
	if err == nil {
		err = p.assign(station{port: port}, port.Network, port.MAC, port.IPv4, port.IPv6)
	}
	if err == nil {
		err = p.checkPrivate(c, port)
	}
	p.updateOwner(c, err)
	p.setStatus(name, err)
}

// programmed is the status of most ports.
var programmed = &driver.PortStatus{}

func (p *desiredStates) setStatus(name string, err error) {
	st := programmed
	if err != nil {
		st = &driver.PortStatus{Err: err}
	}
	p.status = p.status.Set(name, st)
}

func (p *desiredStates) judgeRemote(key desired.RemoteKey) {
	c := remoteClaimant(key)
	r, ok := p.want.Remotes.Get(key)
	if !ok {
		p.updateOwner(c, nil)
		return
	}
	var err error
	if keyOf(r) != key {
		err = model.Errorf(model.ErrInvalid, "it calls itself %s", remoteName(keyOf(r)))
	} else {
		err = p.assign(station{remote: r}, r.Network, r.MAC, r.IPv4, r.IPv6)
	}
	if err == nil && !r.VTEP.IsValid() {
		if n, _ := p.want.Networks.Get(r.Network); n.Encap == model.EncapVXLAN {
			err = model.Errorf(model.ErrInvalid, "its host has no tunnel endpoint")
		}
	}
	p.updateOwner(c, err)
}

// networkTag is what only one network of a host can have.
type networkTag struct {
	encap model.Encap
	tag   uint32
}

func tagOf(n *desired.Network) networkTag { return networkTag{n.Encap, n.Tag} }

func checkNetwork(id model.NetworkID, n *desired.Network, vtep netip.Addr, tags map[networkTag]model.NetworkID) error {
	limit := uint32(model.MaxVNI)
	if n.Encap == model.EncapVLAN {
		limit = model.MaxVLAN
	} else if n.Encap != model.EncapVXLAN {
		return model.Errorf(model.ErrInvalid, "encapsulation %q is not known", n.Encap)
	}
	switch {
	case id == 0 || n.ID != id:
		return model.Errorf(model.ErrInvalid, "network %d has the id %d", id, n.ID)
	case n.Tag == 0 || n.Tag > limit:
		return model.Errorf(model.ErrInvalid, "%s tag %d is not between 1 and %d", n.Encap, n.Tag, limit)
	case n.Encap == model.EncapVXLAN && !vtep.IsValid():
		return model.Errorf(model.ErrInvalid, "this host has no tunnel endpoint")
	}
	key := tagOf(n)
	if other, dup := tags[key]; dup {
		return model.Errorf(model.ErrExists, "%s tag %d belongs to network %d", n.Encap, n.Tag, other)
	}
	tags[key] = id
	return nil
}

func (p *desiredStates) checkPort(name string, port *desired.Port, hasIface func(string) bool) error {
	_, hasSet := p.want.PolicySets.Get(port.Policies)
	switch {
	case name == "" || len(name) > 15 || strings.ContainsAny(name, "/ \t\n") || name != port.IfName:
		return model.Errorf(model.ErrInvalid, "interface name %q must be 1-15 bytes without slash or space", port.IfName)
	case hasIface != nil && !hasIface(name):
		p.absent[name] = struct{}{}
		return model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
	case port.Policies != 0 && (!hasSet || p.refused[port.Policies] != nil):
		return model.Errorf(model.ErrNotFound, "policy set %d does not exist", port.Policies)
	}
	return nil
}

// checkPrivate refuses a port whose private address cannot be, or is taken.
func (p *desiredStates) checkPrivate(c claimant, port *desired.Port) error {
	way := p.want.HostNAT
	number := port.PrivateNumber()
	if way == nil || !number.IsValid() {
		return nil
	}
	if err := way.Check(port); err != nil {
		return err
	}
	if other, dup := p.privates[number]; dup {
		return model.Errorf(model.ErrExists, "private address %s belongs to %s", number, other)
	}
	p.privates[number] = c
	return nil
}

// problems lists what is refused, ports excepted: the caller may append.
func (p *desiredStates) problems() []driver.Problem {
	if p.list == nil {
		p.list = []driver.Problem{}
		for key, err := range p.refused {
			switch k := key.(type) {
			case model.NetworkID:
				p.list = append(p.list, driver.Problem{Object: networkName(k), Err: err})
			case model.ServiceKey:
				p.list = append(p.list, driver.Problem{Object: serviceName(k), Err: err})
			case desired.PolicySetID:
				p.list = append(p.list, driver.Problem{Object: setName(k), Err: err})
			case desired.RemoteKey:
				p.list = append(p.list, driver.Problem{Object: remoteName(k), Err: err})
			}
		}
		slices.SortFunc(p.list, func(a, b driver.Problem) int { return cmp.Compare(a.Object, b.Object) })
	}
	if len(p.list) == 0 {
		return nil
	}
	return slices.Clip(p.list)
}
