package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// networks are the networks of this host: tags, subnets, and the members that receive
// flooded packets. Driver.mu guards it.
type networks struct {
	Networks table[uint32, network]    `map:"networks"`
	Tags     table[tagKey, segment]    `map:"tags,global"`
	Subnets  table[subnetKey, uint32]  `map:"subnets"` // networks, of joined ones
	Members  table[memberKey, station] `map:"members"`

	ports map[uint32]map[string]stationPort // programmed ports by network
	dirty map[uint32]bool                   // networks whose members change
	moved []*desired.Network                // in an Apply, networks whose tag still leads to another number
}

type stationPort struct{ ifindex, set uint32 }

// load initialises the state from the tables.
func (x *networks) load() {
	x.ports, x.dirty = map[uint32]map[string]stationPort{}, map[uint32]bool{}
}

// begin resets the state of the last Apply.
func (x *networks) begin(run *applyRun) {
	x.Members.begin()
	x.Tags.begin()
	x.Subnets.begin()
	x.moved = nil
	if run.scratch {
		x.ports = map[uint32]map[string]stationPort{}
		for id := range x.Networks.have {
			x.dirty[id] = true
		}
	}
}

// setPort makes a port a member of a network.
func (x *networks) setPort(id uint32, name string, s stationPort) {
	if x.ports[id] == nil {
		x.ports[id] = map[string]stationPort{}
	}
	if x.ports[id][name] != s {
		x.ports[id][name] = s
		x.dirty[id] = true
	}
}

// removePort undoes setPort.
func (x *networks) removePort(id uint32, name string) {
	if x.ports[id] != nil {
		delete(x.ports[id], name)
		x.dirty[id] = true
	}
}

// check finds the valid networks.
func (x *networks) check(run *applyRun) error {
	tags := map[tagKey]model.NetworkID{}
	all := maps.Collect(run.want.Networks.All())
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
			err = model.Errorf(model.ErrInvalid, "network %d has the id %d", id, n.ID)
		case n.Tag == 0 || n.Tag > limit:
			err = model.Errorf(model.ErrInvalid, "%s tag %d is not between 1 and %d", n.Encap, n.Tag, limit)
		case n.Encap == model.EncapVXLAN && !run.want.VTEP.IsValid():
			err = model.Errorf(model.ErrInvalid, "this host has no tunnel endpoint")
		case tags[k] != 0:
			err = model.Errorf(model.ErrExists, "%s tag %d belongs to network %d", n.Encap, n.Tag, tags[k])
		}
		if err != nil {
			run.problem(fmt.Sprintf("network %d", id), err)
			continue
		}
		tags[k], run.networks[id] = id, n
	}
	return nil
}

func (x *networks) put(run *applyRun) error {
	for id, n := range run.networks {
		old, had := x.Networks.have[uint32(id)]
		v := network{Encap: toEncap(n.Encap), Tag: n.Tag, Ports: old.Ports, VTEPs: old.VTEPs}
		err := x.Networks.put(uint32(id), v)
		if had && old != v {
			run.w.global++
		}
		if err == nil && x.tagIsOthers(n) {
			x.moved = append(x.moved, n)
		} else if err == nil {
			err = x.writeLookups(n)
		}
		if fatal(err) {
			return err
		}
		if err != nil {
			run.problem(fmt.Sprintf("network %d", id), err)
			delete(run.networks, id)
			continue
		}
		if last, ok := run.last.Networks.Get(id); !ok || !slices.Equal(last.VTEPs, n.VTEPs) {
			x.dirty[uint32(id)] = true
		}
	}
	return nil
}

// writeLookups has a network's tag and its subnets lead to it.
func (x *networks) writeLookups(n *desired.Network) error {
	if err := x.Tags.put(tagKey{toEncap(n.Encap), n.Tag}, segment{uint32(n.ID), uint32(n.Domain())}); err != nil {
		return err
	}
	return x.putSubnets(n)
}

// tagIsOthers reports whether a network's tag is another one's, as when networks get the
// numbers of another store.
func (x *networks) tagIsOthers(n *desired.Network) bool {
	s, ok := x.Tags.have[tagKey{toEncap(n.Encap), n.Tag}]
	return ok && s.Net != uint32(n.ID)
}

// move has the tags and subnets of networks with other numbers lead there, now that
// all is there that is asked for under these.
func (x *networks) move(run *applyRun) error {
	for _, n := range x.moved {
		if err := x.writeLookups(n); fatal(err) {
			return err
		} else if err != nil {
			run.problem(fmt.Sprintf("network %d", n.ID), err)
		}
	}
	return nil
}

func (x *networks) remove(run *applyRun) error {
	if err := errors.Join(x.Tags.sweep(), x.Subnets.sweep()); err != nil {
		return err
	}
	for id := range x.Networks.have {
		if run.networks[model.NetworkID(id)] == nil {
			if err := x.Networks.del(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// putSubnets writes which addresses are of a joined network.
func (x *networks) putSubnets(n *desired.Network) error {
	if n.Joined == 0 {
		return nil
	}
	for _, s := range []netip.Prefix{n.Subnet, n.Subnet6} {
		if !s.IsValid() {
			continue
		}
		if err := x.Subnets.put(toSubnetKey(n.Domain(), s), uint32(n.ID)); err != nil {
			return err
		}
	}
	return nil
}

// putMembers writes who gets what is flooded, in a fixed order.
func (x *networks) putMembers(run *applyRun) error {
	for id := range x.dirty {
		if err := x.putMembersOf(run, id); fatal(err) {
			return err
		} else if err != nil {
			run.problem(fmt.Sprintf("network %d", id), err)
		}
	}
	clear(x.dirty)
	if run.scratch {
		return x.Members.sweep()
	}
	return nil
}

func (x *networks) putMembersOf(run *applyRun, id uint32) error {
	n := run.networks[model.NetworkID(id)]
	old := x.Networks.have[id]
	v := network{Encap: old.Encap, Tag: old.Tag}
	put := func(kind uint32, at *uint32, s station) error {
		err := x.Members.put(memberKey{id, kind, *at}, s)
		if err == nil {
			*at++
		}
		return err
	}
	var errs []error
	at := x.ports[id]
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
		errs = append(errs, x.Networks.put(id, v))
	}
	for i := v.Ports; i < old.Ports; i++ {
		errs = append(errs, x.Members.del(memberKey{id, memberPort, i}))
	}
	for i := v.VTEPs; i < old.VTEPs; i++ {
		errs = append(errs, x.Members.del(memberKey{id, memberVTEP, i}))
	}
	return errors.Join(errs...)
}
