package ebpf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// pass is one Apply under way.
type pass struct {
	*Driver
	want     desired.Host
	rep      *driver.Report
	scratch  bool // what the maps hold is compared with the whole picture
	networks map[model.NetworkID]*desired.Network
	attached map[string]bool // interfaces that keep their programs
	oldHosts []hostKey       // entries of objects that changed or went
	oldMACs  []stationKey
}

// Apply implements driver.Driver.
func (d *Driver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rep := driver.Report{Revision: want.Revision, Ports: map[string]driver.PortStatus{}}
	if err := ctx.Err(); err != nil {
		return rep, fmt.Errorf("ebpf driver: %w", err)
	}
	if d.closed {
		return rep, model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	d.purgeDoomed(time.Now().Add(-doomedGrace))
	d.w.changes = 0
	p := &pass{Driver: d, want: want, rep: &rep, networks: map[model.NetworkID]*desired.Network{}, attached: map[string]bool{}}
	p.scratch = !d.known || d.networkMoved(want)
	if p.scratch {
		d.last = desired.Host{}
	}
	d.known = false
	err := p.run()
	rep.Changes = d.w.changes
	if rep.Changes > 0 || err != nil {
		err = errors.Join(err, d.newEpoch())
	}
	d.last = want
	d.known = err == nil && len(rep.Problems) == 0
	if err != nil {
		return rep, fmt.Errorf("ebpf driver: %w", err)
	}
	return rep, nil
}

// networkMoved tells whether a network changed its tag, which ports repeat.
func (d *Driver) networkMoved(want desired.Host) bool {
	for c := range want.Networks.Diff(d.last.Networks) {
		if c.Had && c.Has && (c.Old.Encap != c.New.Encap || c.Old.Tag != c.New.Tag) {
			return true
		}
	}
	return want.VTEP != d.last.VTEP
}

// newEpoch makes every cached verdict stale and forgets the connections of
// addresses that changed hands.
func (d *Driver) newEpoch() error {
	defer func(fault func() error) { d.w.fault = fault }(d.w.fault)
	d.w.fault = nil
	s := d.settings.have[0]
	s.Epoch++
	d.settings.quiet = true
	err := d.settings.put(0, s)
	d.settings.quiet = false
	if err == nil {
		err = d.forgetGone()
	}
	return err
}

func (p *pass) problem(object string, err error) {
	p.rep.Problems = append(p.rep.Problems, driver.Problem{Object: object, Err: err})
}

// run writes what others refer to first and removes it last.
func (p *pass) run() error {
	p.stations.begin()
	p.hosts.begin()
	p.ports.begin()
	p.members.begin()
	p.tags.begin()
	if p.scratch {
		p.netPorts = map[uint32]map[string]stationPort{}
		for id := range p.Driver.networks.have {
			p.dirty[id] = true
		}
	}
	for _, step := range []func() error{
		p.checkNetworks, p.putDevices, p.putNetworks, p.putSets, p.putRemotes, p.putPorts, p.putMembers,
		p.removePorts, p.removeStations, p.removeSets, p.removeNetworks,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) checkNetworks() error {
	tags := map[tagKey]model.NetworkID{}
	all := maps.Collect(p.want.Networks.All())
	for _, id := range slices.Sorted(maps.Keys(all)) {
		n := all[id]
		k := tagKey{toEncap(n.Encap), n.Tag}
		limit := uint32(model.MaxVNI)
		if n.Encap == model.EncapVLAN {
			limit = model.MaxVLAN
		}
		var err error
		switch {
		case id == 0 || n.ID != id:
			err = model.Errorf(model.ErrInvalid, "network %d calls itself %d", id, n.ID)
		case n.Tag == 0 || n.Tag > limit:
			err = model.Errorf(model.ErrInvalid, "%s tag %d is not between 1 and %d", n.Encap, n.Tag, limit)
		case n.Encap == model.EncapVXLAN && !p.want.VTEP.IsValid():
			err = model.Errorf(model.ErrInvalid, "this host has no tunnel endpoint")
		case tags[k] != 0:
			err = model.Errorf(model.ErrExists, "%s tag %d is network %d's", n.Encap, n.Tag, tags[k])
		}
		if err != nil {
			p.problem(fmt.Sprintf("network %d", id), err)
			continue
		}
		tags[k], p.networks[id] = id, n
	}
	return nil
}

// putDevices makes sure of the tunnel device and the uplink, where networks need them.
func (p *pass) putDevices() error {
	s := p.settings.have[0]
	s.Flood, s.VXLAN, s.Uplink = 0, 0, 0
	if p.want.ArpMode == model.ArpFlood {
		s.Flood = 1
	}
	var vxlan, vlan bool
	for _, n := range p.networks {
		vxlan = vxlan || n.Encap == model.EncapVXLAN
		vlan = vlan || n.Encap == model.EncapVLAN
	}
	if vxlan {
		index, made, err := ensureTunnel(p.cfg.Device, "contiv "+p.cfg.PinDir, p.cfg.VXLANPort)
		if err == nil {
			var attached bool
			attached, err = p.att.attach(p.cfg.Device, index, true, p.obj.FromTunnel)
			p.count(made, attached)
		}
		if err != nil {
			p.problem("tunnel "+p.cfg.Device, err)
		} else {
			s.VXLAN, p.attached[p.cfg.Device] = uint32(index), true
		}
	}
	if name := p.uplinkName(); vlan && name != "" {
		index, err := ifindex(name)
		if err == nil {
			var attached bool
			attached, err = p.att.attach(name, index, true, p.obj.FromUplink)
			p.count(attached)
		}
		if err != nil {
			p.problem("uplink "+name, err)
		} else {
			s.Uplink, p.attached[name] = uint32(index), true
		}
	}
	return p.settings.put(0, s)
}

func (p *pass) count(done ...bool) {
	for _, d := range done {
		if d {
			p.w.changes++
		}
	}
}

func (p *pass) putNetworks() error {
	for id, n := range p.networks {
		old := p.Driver.networks.have[uint32(id)]
		v := network{Encap: toEncap(n.Encap), Tag: n.Tag, Ports: old.Ports, VTEPs: old.VTEPs}
		if err := p.Driver.networks.put(uint32(id), v); err != nil {
			return err
		}
		if err := p.tags.put(tagKey{v.Encap, v.Tag}, uint32(id)); err != nil {
			return err
		}
		if last, ok := p.last.Networks.Get(id); !ok || !slices.Equal(last.VTEPs, n.VTEPs) {
			p.dirty[uint32(id)] = true
		}
	}
	return nil
}

// putHost writes who is at an address.
func (p *pass) putHost(k hostKey, v hostEntry) error {
	old, was := p.hosts.have[k]
	if was && (old.MAC != v.MAC || (old.Ifindex == 0) != (v.Ifindex == 0)) {
		p.gone[k] = true
	}
	return p.hosts.put(k, v)
}

func addresses(net model.NetworkID, mac model.MAC, ips ...netip.Addr) []hostKey {
	var out []hostKey
	for _, a := range append(ips, driver.LinkLocal(mac)) {
		if a.IsValid() {
			out = append(out, hostKey{uint32(net), toAddr(a)})
		}
	}
	return out
}

func (p *pass) putRemotes() error {
	for c := range p.want.Remotes.Diff(p.last.Remotes) {
		if c.Had {
			p.oldMACs = append(p.oldMACs, stationKey{Net: uint32(c.Key.Network), MAC: c.Key.MAC})
			p.oldHosts = append(p.oldHosts, addresses(c.Old.Network, c.Old.MAC, c.Old.IPv4, c.Old.IPv6)...)
		}
		if !c.Has {
			continue
		}
		r := c.New
		n := p.networks[r.Network]
		switch name := fmt.Sprintf("remote %d/%s", c.Key.Network, c.Key.MAC); {
		case n == nil:
			p.problem(name, model.Errorf(model.ErrNotFound, "network %d does not exist", r.Network))
			continue
		case n.Encap == model.EncapVXLAN && !r.VTEP.IsValid():
			p.problem(name, model.Errorf(model.ErrInvalid, "its host has no tunnel endpoint"))
			continue
		}
		var s station
		s.setVTEP(r.VTEP)
		if err := p.stations.put(stationKey{Net: uint32(r.Network), MAC: r.MAC}, s); err != nil {
			return err
		}
		for _, k := range addresses(r.Network, r.MAC, r.IPv4, r.IPv6) {
			if err := p.putHost(k, hostEntry{Identity: uint32(r.Identity), MAC: r.MAC}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pass) checkPort(name string, o *desired.Port) error {
	switch {
	case name == "" || len(name) > 15 || strings.ContainsAny(name, "/:\t\n ") || name != o.IfName:
		return model.Errorf(model.ErrInvalid, "interface name %q must be 1-15 bytes without slash, colon or space", o.IfName)
	case p.networks[o.Network] == nil:
		return model.Errorf(model.ErrNotFound, "network %d does not exist", o.Network)
	case o.MAC == (model.MAC{}) || o.MAC[0]&1 != 0:
		return model.Errorf(model.ErrInvalid, "MAC %s is not a station's", o.MAC)
	case p.refused[o.Policies] != nil:
		return p.refused[o.Policies]
	}
	if o.Policies != 0 {
		if s, ok := p.want.PolicySets.Get(o.Policies); !ok || s.ID != o.Policies {
			return model.Errorf(model.ErrNotFound, "policy set %d does not exist", o.Policies)
		}
	}
	return nil
}

func (p *pass) putPorts() error {
	for name, o := range p.want.Ports.All() {
		err := p.checkPort(name, o)
		index := 0
		if err == nil {
			index, err = ifindex(name)
			if err == nil && index == 0 {
				err = model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
			}
		}
		if err == nil {
			err = p.attachPort(name, index)
		}
		p.rep.Ports[name] = driver.PortStatus{Err: err}
		if err != nil {
			continue
		}
		if err := p.putPort(name, uint32(index), o); err != nil {
			p.rep.Ports[name] = driver.PortStatus{Err: err}
			return err
		}
	}
	return nil
}

func (p *pass) attachPort(name string, index int) error {
	in, err := p.att.attach(name, index, true, p.obj.FromContainer)
	p.count(in)
	if err != nil {
		return err
	}
	out, err := p.att.attach(name, index, false, p.obj.ToContainer)
	p.count(out)
	return err
}

func (p *pass) putPort(name string, index uint32, o *desired.Port) error {
	n := p.networks[o.Network]
	if old, ok := p.last.Ports.Get(name); ok && *old != *o {
		p.forgetPort(old)
	}
	p.attached[name], p.indexes[name], p.endpoint[name] = true, int(index), o.Endpoint
	s := stationPort{index, uint32(o.Policies)}
	if at := p.netPorts[uint32(o.Network)]; at == nil {
		p.netPorts[uint32(o.Network)] = map[string]stationPort{}
	}
	if p.netPorts[uint32(o.Network)][name] != s {
		p.netPorts[uint32(o.Network)][name] = s
		p.dirty[uint32(o.Network)] = true
	}
	var c portCounter
	if err := p.obj.PortCounters.Lookup(index, &[]portCounter{}); err != nil {
		if err := p.obj.PortCounters.Put(index, slices.Repeat([]portCounter{c}, cpus())); err != nil {
			return fmt.Errorf("write map port_counters: %w", err)
		}
	}
	for _, k := range addresses(o.Network, o.MAC, o.IPv4, o.IPv6) {
		if err := p.putHost(k, hostEntry{Identity: uint32(o.Identity), Ifindex: index, Set: uint32(o.Policies), MAC: o.MAC}); err != nil {
			return err
		}
	}
	if err := p.stations.put(stationKey{Net: uint32(o.Network), MAC: o.MAC}, station{Ifindex: index, Set: uint32(o.Policies)}); err != nil {
		return err
	}
	return p.ports.put(index, port{
		Net: uint32(o.Network), Tag: n.Tag, Encap: toEncap(n.Encap), Identity: uint32(o.Identity), Set: uint32(o.Policies),
		IP4: toAddr(o.IPv4), IP6: toAddr(o.IPv6), MAC: o.MAC,
	})
}

func (p *pass) forgetPort(o *desired.Port) {
	p.oldMACs = append(p.oldMACs, stationKey{Net: uint32(o.Network), MAC: o.MAC})
	p.oldHosts = append(p.oldHosts, addresses(o.Network, o.MAC, o.IPv4, o.IPv6)...)
	if at := p.netPorts[uint32(o.Network)]; at != nil {
		if want, ok := p.want.Ports.Get(o.IfName); !ok || want.Network != o.Network || p.rep.Ports[o.IfName].Err != nil {
			delete(at, o.IfName)
			p.dirty[uint32(o.Network)] = true
		}
	}
}

// putMembers writes who gets what is flooded, in a fixed order.
func (p *pass) putMembers() error {
	for id := range p.last.Ports.All() { // ports that are not there any more
		if old, ok := p.last.Ports.Get(id); ok && !p.attached[id] {
			p.forgetPort(old)
		}
	}
	for id := range p.dirty {
		n := p.networks[model.NetworkID(id)]
		old := p.Driver.networks.have[id]
		v := network{Encap: old.Encap, Tag: old.Tag}
		at := p.netPorts[id]
		for _, name := range slices.Sorted(maps.Keys(at)) {
			if err := p.members.put(memberKey{id, memberPort, v.Ports}, station{Ifindex: at[name].ifindex, Set: at[name].set}); err != nil {
				return err
			}
			v.Ports++
		}
		if n != nil && n.Encap == model.EncapVXLAN {
			for _, a := range n.VTEPs {
				var s station
				s.setVTEP(a)
				if err := p.members.put(memberKey{id, memberVTEP, v.VTEPs}, s); err != nil {
					return err
				}
				v.VTEPs++
			}
		}
		if n != nil {
			if err := p.Driver.networks.put(id, v); err != nil {
				return err
			}
		}
		for i := v.Ports; i < old.Ports; i++ {
			if err := p.members.del(memberKey{id, memberPort, i}); err != nil {
				return err
			}
		}
		for i := v.VTEPs; i < old.VTEPs; i++ {
			if err := p.members.del(memberKey{id, memberVTEP, i}); err != nil {
				return err
			}
		}
	}
	clear(p.dirty)
	if p.scratch {
		return p.members.sweep()
	}
	return nil
}

// removePorts closes the ports that are not wanted, then takes the programs off.
func (p *pass) removePorts() error {
	names := map[int]string{}
	for name, index := range p.indexes {
		names[index] = name
	}
	for index := range p.ports.have {
		if p.ports.wanted[index] {
			continue
		}
		if err := p.ports.del(index); err != nil {
			return err
		}
		if err := p.obj.PortCounters.Delete(index); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map port_counters: %w", err)
		}
		if name := names[int(index)]; p.att.way == attachClsact && !p.attached[name] {
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
			delete(p.endpoint, name)
		}
	}
	return nil
}

func (p *pass) removeStations() error {
	if p.scratch {
		for k := range p.hosts.have {
			if !p.hosts.wanted[k] {
				p.gone[k] = true
			}
		}
		return errors.Join(p.hosts.sweep(), p.stations.sweep())
	}
	for _, k := range p.oldHosts {
		if !p.hosts.wanted[k] {
			p.gone[k] = true
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

func (p *pass) removeNetworks() error {
	for k := range p.tags.have {
		if !p.tags.wanted[k] {
			if err := p.tags.del(k); err != nil {
				return err
			}
		}
	}
	for id := range p.Driver.networks.have {
		if p.networks[model.NetworkID(id)] == nil {
			if err := p.Driver.networks.del(id); err != nil {
				return err
			}
		}
	}
	return nil
}
