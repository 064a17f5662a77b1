package ebpf

import (
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// endpoints maps MACs and addresses to local ports and remote hosts. It also tracks which
// addresses changed their owner. Driver.mu guards it.
type endpoints struct {
	Hosts    table[domainAddr, endpointEntry] `map:"hosts"`
	Stations table[stationKey, station]       `map:"stations"`

	generations      *generations
	generation       uint32              // last one given, of struct host
	removedAddresses map[domainAddr]bool // addresses that changed hands, whose connections are to be taken out
	oldHosts         []domainAddr        // in an Apply, entries of objects that changed or went
	oldMACs          []stationKey
}

// load initialises the state from the tables.
func (e *endpoints) load() {
	e.removedAddresses = map[domainAddr]bool{}
	for _, h := range e.Hosts.have {
		e.generation = max(e.generation, h.OwnerVersion)
	}
}

// begin resets the state of the last Apply.
func (e *endpoints) begin() {
	e.Hosts.begin()
	e.Stations.begin()
	e.oldHosts, e.oldMACs = nil, nil
}

// replace notes the previous entries of an endpoint, which remove deletes.
func (e *endpoints) replace(id model.NetworkID, mac model.MAC, hosts []domainAddr) {
	e.oldMACs = append(e.oldMACs, stationKey{Net: uint32(id), MAC: mac})
	e.oldHosts = append(e.oldHosts, hosts...)
}

func (e *endpoints) putRemotes(run *applyRun) error {
	for c := range run.want.Remotes.Diff(run.last.Remotes) {
		if c.Had {
			e.replace(c.Key.Network, c.Key.MAC, run.oldAddresses(c.Old.Network, c.Old.MAC, c.Old.IPv4, c.Old.IPv6))
		}
		if !c.Has {
			continue
		}
		r := c.New
		n := run.networks[r.Network]
		name := fmt.Sprintf("remote %d/%s", c.Key.Network, c.Key.MAC)
		switch {
		case n == nil:
			run.problem(name, model.Errorf(model.ErrNotFound, "network %d does not exist", r.Network))
			continue
		case n.Encap == model.EncapVXLAN && !r.VTEP.IsValid():
			run.problem(name, model.Errorf(model.ErrInvalid, "its host has no tunnel endpoint"))
			continue
		}
		if err := e.putRemote(run, r); fatal(err) {
			return err
		} else if err != nil {
			run.problem(name, err)
		}
	}
	return nil
}

func (e *endpoints) putRemote(run *applyRun, r *desired.Remote) error {
	n := run.networks[r.Network]
	hosts, at := addresses(n, r.MAC, r.IPv4, r.IPv6), stationKey{Net: uint32(r.Network), MAC: r.MAC}
	if err := errors.Join(e.Hosts.room(hosts...), e.Stations.room(at)); err != nil {
		return err
	}
	defer e.generations.addSince(hosts, run.w.changes)
	var s station
	s.setVTEP(r.VTEP)
	if err := e.Stations.put(at, s); err != nil {
		return err
	}
	for _, k := range hosts {
		if err := e.putHost(k, endpointEntry{Identity: uint32(r.Identity), Net: uint32(r.Network), MAC: r.MAC, OutsideSubnets: outsideSubnets(n, k)}); err != nil {
			return err
		}
	}
	return nil
}

// putStation has a port's addresses found.
func (e *endpoints) putStation(run *applyRun, index uint32, o *desired.Port, hosts []domainAddr) error {
	n := run.networks[o.Network]
	for _, k := range hosts {
		if err := e.putHost(k, endpointEntry{Identity: uint32(o.Identity), Ifindex: index, Set: uint32(o.Policies), Net: uint32(o.Network), MAC: o.MAC, OutsideSubnets: outsideSubnets(n, k)}); err != nil {
			return err
		}
	}
	return e.Stations.put(stationKey{Net: uint32(o.Network), MAC: o.MAC}, station{Ifindex: index, Set: uint32(o.Policies)})
}

func (e *endpoints) remove(run *applyRun) error {
	if run.scratch {
		for k := range e.Hosts.have {
			if !e.Hosts.wanted[k] {
				e.markVacant(k)
			}
		}
		return errors.Join(e.Hosts.sweep(), e.Stations.sweep())
	}
	for _, k := range e.oldHosts {
		if !e.Hosts.wanted[k] {
			e.markVacant(k)
			if err := e.Hosts.del(k); err != nil {
				return err
			}
		}
	}
	for _, k := range e.oldMACs {
		if !e.Stations.wanted[k] {
			if err := e.Stations.del(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// putHost writes who is at an address. Connections of who was there before end
// with the number that their entries bear (same_owners of bpf/conntrack.h).
func (e *endpoints) putHost(k domainAddr, v endpointEntry) error {
	old, was := e.Hosts.have[k]
	if was && old.MAC == v.MAC && (old.Ifindex == 0) == (v.Ifindex == 0) {
		v.OwnerVersion = old.OwnerVersion
		return e.Hosts.put(k, v)
	}
	if was {
		e.removedAddresses[k] = true
	}
	now, err := monotonic()
	if err != nil {
		return writeError{err}
	}
	// By the clock, so that a number is used again, if at all, long after the
	// connections that bear it: it outlasts this process, and the entry.
	if e.generation = max(e.generation+1, uint32(now>>20)); e.generation == 0 {
		e.generation = 1
	}
	v.OwnerVersion = e.generation
	return e.Hosts.put(k, v)
}

// markVacant notes that an address is to have no endpoint.
func (e *endpoints) markVacant(k domainAddr) {
	if _, ok := e.Hosts.have[k]; ok {
		e.removedAddresses[k] = true
		e.generations.add(k)
	}
}

// takeMoved returns the addresses that changed their owner since its last call.
func (e *endpoints) takeMoved() movedAddresses {
	out := movedAddresses{}
	for k := range e.removedAddresses {
		out[k] = e.Hosts.have[k].OwnerVersion
	}
	e.removedAddresses = map[domainAddr]bool{}
	return out
}

// returnMoved returns addresses to the set that takeMoved reads.
func (e *endpoints) returnMoved(s movedAddresses) {
	for k := range s {
		e.removedAddresses[k] = true
	}
}
