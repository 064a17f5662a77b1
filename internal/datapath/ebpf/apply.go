package ebpf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/shaping"
	"github.com/contiv/netplugin/v2/internal/model"
)

// applyRun is one Apply under way.
type applyRun struct {
	*Driver
	want      desired.Host
	rep       *driver.Report
	scratch   bool // what the maps hold is compared with the whole picture
	networks  map[model.NetworkID]*desired.Network
	moved     []*desired.Network           // whose tag leads to another number yet
	attached  map[string]bool              // interfaces that keep their programs
	private   map[netip.Addr]string        // ports by private address
	tunnelErr error                        // why there is no tunnel
	rewritten map[desired.PolicySetID]bool // whose ports' connections are all judged anew
	oldHosts  []hostKey                    // entries of objects that changed or went
	oldMACs   []stationKey
	oldConns  []connKey             // under a former domain
	parted    map[connKey]bool      // likewise, translations: as their clients send
	qdiscs    map[int]shaping.Queue // queues of interfaces; nil = not looked at
	lacking   bool                  // it is told that the kernel has no queues
}

// Apply implements driver.Driver.
func (d *Driver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rep := driver.Report{Revision: want.Revision}
	if err := ctx.Err(); err != nil {
		return rep, fmt.Errorf("ebpf driver: %w", err)
	}
	if d.closed {
		return rep, model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	d.w.changes, d.w.global = 0, 0
	before := d.last.PolicySets
	p := &applyRun{Driver: d, want: want, rep: &rep, networks: map[model.NetworkID]*desired.Network{}, attached: map[string]bool{}, private: map[netip.Addr]string{}, rewritten: map[desired.PolicySetID]bool{}}
	p.scratch = !d.known || d.networkMoved(want)
	if p.scratch {
		d.last = desired.Host{}
	}
	d.known = false
	err := p.run()
	p.tellUnserved()
	if err == nil && d.restoreDue(d.w.changes > 0) {
		err = d.restoreTables()
	}
	rep.Changes = d.w.changes
	if err = errors.Join(err, d.bumpGeneration()); d.w.global > 0 || err != nil || !d.begun {
		epoch := d.newEpoch()
		d.begun = epoch == nil
		err = errors.Join(err, epoch)
	}
	d.purgeDoomed(time.Now().Add(-doomedGrace)) // after what is written, which else would take its memory at once
	d.last = want
	d.pendingAudits.Note(before, want.PolicySets)
	err = errors.Join(err, d.reportEstablished())
	d.known = err == nil && len(rep.Problems) == 0
	if err != nil {
		return rep, fmt.Errorf("ebpf driver: %w", err)
	}
	return rep, nil
}

func (p *applyRun) problem(object string, err error) {
	p.rep.Problems = append(p.rep.Problems, driver.Problem{Object: object, Err: err})
}

// run writes what others refer to first and removes it last.
func (p *applyRun) run() error {
	p.stations.begin()
	p.hosts.begin()
	p.ports.begin()
	p.members.begin()
	p.tags.begin()
	p.subnets.begin()
	p.routedNetworks.begin()
	p.privates.begin()
	p.queues.begin()
	p.beginServices()
	if p.scratch {
		p.netPorts = map[uint32]map[string]stationPort{}
		for id := range p.Driver.networks.have {
			p.dirty[id] = true
		}
	}
	for _, step := range []func() error{
		p.checkNetworks, p.putDevices, p.rejoin, p.putNetworks, p.putRoutedNetworks, p.putTunnels, p.putNodes, p.putSets, p.putRemotes, p.putPorts, p.putMembers, p.moveNetworks, p.putGroups,
		p.putServices, p.removePorts, p.removeQueues, p.removeHostSide, p.removeStations, p.removeConns, p.removeSets, p.removeNetworks,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (p *applyRun) count(done ...bool) {
	for _, d := range done {
		if d {
			p.w.changes++
		}
	}
}

func (p *applyRun) putRemotes() error {
	for c := range p.want.Remotes.Diff(p.last.Remotes) {
		if c.Had {
			p.oldMACs = append(p.oldMACs, stationKey{Net: uint32(c.Key.Network), MAC: c.Key.MAC})
			p.oldHosts = append(p.oldHosts, p.oldAddresses(c.Old.Network, c.Old.MAC, c.Old.IPv4, c.Old.IPv6)...)
		}
		if !c.Has {
			continue
		}
		r := c.New
		n := p.networks[r.Network]
		name := fmt.Sprintf("remote %d/%s", c.Key.Network, c.Key.MAC)
		switch {
		case n == nil:
			p.problem(name, model.Errorf(model.ErrNotFound, "network %d does not exist", r.Network))
			continue
		case n.Encap == model.EncapVXLAN && !r.VTEP.IsValid():
			p.problem(name, model.Errorf(model.ErrInvalid, "its host has no tunnel endpoint"))
			continue
		}
		if err := p.putRemote(r); fatal(err) {
			return err
		} else if err != nil {
			p.problem(name, err)
		}
	}
	return nil
}

func (p *applyRun) putRemote(r *desired.Remote) error {
	n := p.networks[r.Network]
	hosts, at := addresses(n, r.MAC, r.IPv4, r.IPv6), stationKey{Net: uint32(r.Network), MAC: r.MAC}
	if err := errors.Join(p.hosts.room(hosts...), p.stations.room(at)); err != nil {
		return err
	}
	defer p.bumpGenerations(hosts, p.w.changes)
	var s station
	s.setVTEP(r.VTEP)
	if err := p.stations.put(at, s); err != nil {
		return err
	}
	for _, k := range hosts {
		if err := p.putHost(k, hostEntry{Identity: uint32(r.Identity), Net: uint32(r.Network), MAC: r.MAC, Stray: stray(n, k)}); err != nil {
			return err
		}
	}
	return nil
}

// putPorts programs the ports. One that cannot be keeps the programs on its
// interface, which drop everything.
func (p *applyRun) putPorts() error {
	all := p.verifyAll()
	if all {
		p.putPins()
	}
	ask, err := newIndexer()
	if err != nil {
		return err
	}
	defer ask.close()
	elsewhere := p.served()
	if err := p.putMovedStations(ask); err != nil {
		return err
	}
	for name, o := range p.want.Ports.All() {
		if _, ours := p.indexes[name]; elsewhere != nil && !ours {
			p.rep.Ports.Set(name, driver.PortStatus{Err: elsewhere})
			continue
		}
		wrong := p.checkPort(name, o)
		index, err := p.closePort(name, o, ask, all)
		if err = cmp.Or(wrong, err); err == nil {
			err = p.putPort(name, uint32(index), o, all)
		}
		if err == nil && p.down[index] {
			err = driver.DownError(name)
		}
		p.rep.Ports.Set(name, driver.PortStatus{Err: err})
		if fatal(err) {
			return err
		}
	}
	if all {
		return p.checkOthers()
	}
	return nil
}

// closePort puts the programs on a port's interface, where they are not known
// to be.
func (p *applyRun) closePort(name string, o *desired.Port, ask indexer, verify bool) (int, error) {
	index, err := ask.index(name)
	if err == nil && index == 0 {
		err = model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
	}
	if err == nil && (verify || p.indexes[name] != index) {
		if p.down[index], err = ask.isDown(name); err == nil {
			err = p.attachPort(name, index)
		}
	}
	if err == nil {
		p.attached[name], p.indexes[name], p.endpoint[name] = true, index, o.Endpoint
	}
	return index, err
}

func (p *applyRun) attachPort(name string, index int) error {
	known := p.indexes[name] == index
	in, err := p.att.attachPort(name, index, true, p.obj.FromContainer)
	p.attachedAgain(known && in, name)
	p.count(in)
	if err != nil {
		return err
	}
	out, err := p.att.attachPort(name, index, false, p.obj.ToContainer)
	p.attachedAgain(known && out, name)
	p.count(out)
	return err
}

func (p *applyRun) putPort(name string, index uint32, o *desired.Port, verify bool) error {
	n := p.networks[o.Network]
	if old, ok := p.last.Ports.Get(name); ok && *old != *o {
		p.forgetPort(old)
	}
	hosts, at := addresses(n, o.MAC, o.IPv4, o.IPv6), stationKey{Net: uint32(o.Network), MAC: o.MAC}
	if err := errors.Join(p.hosts.room(hosts...), p.stations.room(at), p.ports.room(index)); err != nil {
		return err
	}
	s := stationPort{index, uint32(o.Policies)}
	if at := p.netPorts[uint32(o.Network)]; at == nil {
		p.netPorts[uint32(o.Network)] = map[string]stationPort{}
	}
	if p.netPorts[uint32(o.Network)][name] != s {
		p.netPorts[uint32(o.Network)][name] = s
		p.dirty[uint32(o.Network)] = true
	}
	slot, err := p.slotOf(index)
	if err != nil {
		return err
	}
	if p.rewritten[o.Policies] {
		p.generations.add(hosts...)
	}
	defer p.bumpGenerations(hosts, p.w.changes)
	if err := p.putStation(index, o, hosts); err != nil {
		return err
	}
	entry := port{
		Net: uint32(o.Network), Domain: uint32(n.Domain()), Tag: n.Tag, Encap: toEncap(n.Encap), Identity: uint32(o.Identity), Set: uint32(o.Policies),
		IP4: toAddr(o.IPv4), IP6: toAddr(o.IPv6), MAC: o.MAC, Slot: slot, RouterIP: word(n.Router()), RouterIP6: toAddr(n.Router6()),
		Subnet: word(n.Subnet.Masked().Addr()), Mask: maskWord(n.Subnet), Subnet6: toAddr(n.Subnet6.Masked().Addr()), Mask6: toMask(n.Subnet6),
	}
	if n.Routed && p.want.Private != nil {
		entry.Native = 1
	}
	if err := p.putEgress(index, o, n, &entry); err != nil {
		return err
	}
	return p.putRated(name, index, entry, o.OnHost, verify)
}

// putStation has a port's addresses found.
func (p *applyRun) putStation(index uint32, o *desired.Port, hosts []hostKey) error {
	n := p.networks[o.Network]
	for _, k := range hosts {
		if err := p.putHost(k, hostEntry{Identity: uint32(o.Identity), Ifindex: index, Set: uint32(o.Policies), Net: uint32(o.Network), MAC: o.MAC, Stray: stray(n, k)}); err != nil {
			return err
		}
	}
	return p.stations.put(stationKey{Net: uint32(o.Network), MAC: o.MAC}, station{Ifindex: index, Set: uint32(o.Policies)})
}

func (p *applyRun) forgetPort(o *desired.Port) {
	p.oldMACs = append(p.oldMACs, stationKey{Net: uint32(o.Network), MAC: o.MAC})
	p.oldHosts = append(p.oldHosts, p.oldAddresses(o.Network, o.MAC, o.IPv4, o.IPv6)...)
	if at := p.netPorts[uint32(o.Network)]; at != nil {
		if want, ok := p.want.Ports.Get(o.IfName); !ok || want.Network != o.Network || p.rep.Ports.Err(o.IfName) != nil {
			delete(at, o.IfName)
			p.dirty[uint32(o.Network)] = true
		}
	}
}

// putMembers writes who gets what is flooded, in a fixed order.
func (p *applyRun) putMembers() error {
	for id := range p.last.Ports.All() { // ports that are not there any more
		if old, ok := p.last.Ports.Get(id); ok && (!p.attached[id] || p.rep.Ports.Err(id) != nil) {
			p.forgetPort(old)
		}
	}
	for id := range p.dirty {
		if err := p.putMembersOf(id); fatal(err) {
			return err
		} else if err != nil {
			p.problem(fmt.Sprintf("network %d", id), err)
		}
	}
	clear(p.dirty)
	if p.scratch {
		return p.members.sweep()
	}
	return nil
}

func (p *applyRun) putMembersOf(id uint32) error {
	n := p.networks[model.NetworkID(id)]
	old := p.Driver.networks.have[id]
	v := network{Encap: old.Encap, Tag: old.Tag}
	put := func(kind uint32, at *uint32, s station) error {
		err := p.members.put(memberKey{id, kind, *at}, s)
		if err == nil {
			*at++
		}
		return err
	}
	var errs []error
	at := p.netPorts[id]
	for _, name := range slices.Sorted(maps.Keys(at)) {
		errs = append(errs, put(memberPort, &v.Ports, station{Ifindex: at[name].ifindex, Set: at[name].set}))
	}
	if n != nil && n.Encap == model.EncapVXLAN {
		for _, a := range n.VTEPs {
			var s station
			s.setVTEP(a)
			errs = append(errs, put(memberVTEP, &v.VTEPs, s))
		}
	}
	if err := errors.Join(errs...); fatal(err) {
		return err
	}
	if n != nil {
		errs = append(errs, p.Driver.networks.put(id, v))
	}
	for i := v.Ports; i < old.Ports; i++ {
		errs = append(errs, p.members.del(memberKey{id, memberPort, i}))
	}
	for i := v.VTEPs; i < old.VTEPs; i++ {
		errs = append(errs, p.members.del(memberKey{id, memberVTEP, i}))
	}
	return errors.Join(errs...)
}

// removePorts closes the ports that are not wanted, then takes the programs off.
func (p *applyRun) removePorts() error {
	names := map[int]string{}
	for name, index := range p.indexes {
		names[index] = name
	}
	for index, o := range p.ports.have {
		if p.ports.wanted[index] {
			continue
		}
		p.dropQueue(index, o)
		if err := p.ports.del(index); err != nil {
			return err
		}
		if name := names[int(index)]; !p.attached[name] {
			if err := p.att.detach(name, int(index)); err != nil {
				p.problem("port "+name, err)
			}
		}
	}
	for name := range p.att.attached() {
		if p.attached[name] {
			continue
		}
		if err := p.att.detach(name, 0); err != nil {
			p.problem("port "+name, err)
		}
		p.count(true)
	}
	for name := range p.indexes {
		if !p.attached[name] {
			delete(p.indexes, name)
			delete(p.queued, name)
			delete(p.endpoint, name)
		}
	}
	return nil
}

func (p *applyRun) removeStations() error {
	if p.scratch {
		for k := range p.hosts.have {
			if !p.hosts.wanted[k] {
				p.leave(k)
			}
		}
		return errors.Join(p.hosts.sweep(), p.stations.sweep())
	}
	for _, k := range p.oldHosts {
		if !p.hosts.wanted[k] {
			p.leave(k)
			if err := p.hosts.del(k); err != nil {
				return err
			}
		}
	}
	for _, k := range p.oldMACs {
		if !p.stations.wanted[k] {
			if err := p.stations.del(k); err != nil {
				return err
			}
		}
	}
	return nil
}
