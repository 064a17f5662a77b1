package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

func (p *applyRun) checkNetworks() error {
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

func (p *applyRun) putNetworks() error {
	for id, n := range p.networks {
		old, had := p.Driver.networks.have[uint32(id)]
		v := network{Encap: toEncap(n.Encap), Tag: n.Tag, Ports: old.Ports, VTEPs: old.VTEPs}
		err := p.Driver.networks.put(uint32(id), v)
		if had && old != v {
			p.w.global++
		}
		if err == nil && p.leadsElsewhere(n) {
			p.moved = append(p.moved, n)
		} else if err == nil {
			err = p.lead(n)
		}
		if fatal(err) {
			return err
		}
		if err != nil {
			p.problem(fmt.Sprintf("network %d", id), err)
			delete(p.networks, id)
			continue
		}
		if last, ok := p.last.Networks.Get(id); !ok || !slices.Equal(last.VTEPs, n.VTEPs) {
			p.dirty[uint32(id)] = true
		}
	}
	return nil
}

// lead has a network's tag and its subnets lead to it.
func (p *applyRun) lead(n *desired.Network) error {
	if err := p.tags.put(tagKey{toEncap(n.Encap), n.Tag}, segment{uint32(n.ID), uint32(n.Domain())}); err != nil {
		return err
	}
	return p.putSubnets(n)
}

// leadsElsewhere tells whether a network's tag is another one's, as when networks get the
// numbers of another store.
func (p *applyRun) leadsElsewhere(n *desired.Network) bool {
	s, ok := p.tags.have[tagKey{toEncap(n.Encap), n.Tag}]
	return ok && s.Net != uint32(n.ID)
}

// putMovedStations has ports of networks with other numbers found under these before the
// first of them sends there. What does not fit is told with the port.
func (p *applyRun) putMovedStations(ask indexer) error {
	if len(p.moved) == 0 {
		return nil
	}
	for name, o := range p.want.Ports.All() {
		index, err := ask.index(name)
		was, there := p.ports.have[uint32(index)]
		if err != nil || !there || was.Net == uint32(o.Network) || p.checkPort(name, o) != nil {
			continue
		}
		hosts, before := addresses(p.networks[o.Network], o.MAC, o.IPv4, o.IPv6), p.w.changes
		if err := p.putStation(uint32(index), o, hosts); fatal(err) {
			return err
		}
		p.bumpGenerations(hosts, before)
	}
	return nil
}

// moveNetworks has the tags and subnets of networks with other numbers lead there, now that
// all is there that is asked for under these.
func (p *applyRun) moveNetworks() error {
	for _, n := range p.moved {
		if err := p.lead(n); fatal(err) {
			return err
		} else if err != nil {
			p.problem(fmt.Sprintf("network %d", n.ID), err)
		}
	}
	return nil
}

func (p *applyRun) removeNetworks() error {
	if err := errors.Join(p.tags.sweep(), p.subnets.sweep(), p.routedNetworks.sweep()); err != nil {
		return err
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
