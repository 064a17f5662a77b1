package ebpf

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Clients outside ask for virtual addresses without a network: the programs find it by
// the address alone.

// exposedEntry is where an exposed service is: struct exposed of bpf/services.h.
type exposedEntry struct {
	Net, Domain    uint32
	Subnet, Mask   uint32 // network order
	Subnet6, Mask6 addr
}

func toExposed(n *desired.Network) exposedEntry {
	return exposedEntry{
		Net: uint32(n.ID), Domain: uint32(n.Domain()), Subnet: word(n.Subnet.Masked().Addr()), Mask: maskWord(n.Subnet),
		Subnet6: toAddr(n.Subnet6.Masked().Addr()), Mask6: toMask(n.Subnet6),
	}
}

func ipsOf(vips []hostKey) (out []addr) {
	for _, a := range vips {
		out = append(out, a.IP)
	}
	return out
}

// expose moves a service's claims to addresses that clients outside ask for.
func (p *applyRun) expose(after *serviceRun, key model.ServiceKey, old, now []hostKey) {
	if slices.Equal(old, now) {
		return
	}
	for _, a := range old {
		p.serving.exposed[a.IP] = slices.DeleteFunc(p.serving.exposed[a.IP], func(k model.ServiceKey) bool { return k == key })
		after.exposed[a.IP] = true
		p.generations.add(a)
	}
	for _, a := range now {
		p.serving.exposed[a.IP] = append(p.serving.exposed[a.IP], key)
		slices.SortFunc(p.serving.exposed[a.IP], func(a, b model.ServiceKey) int { return strings.Compare(a.String(), b.String()) })
		after.exposed[a.IP] = true
		p.generations.add(a)
	}
}

// putExposed lets addresses lead clients outside where they now do: to the first
// service that is exposed there, and has the address in its own domain.
func (p *applyRun) putExposed(after *serviceRun) error {
	for a := range after.moved {
		after.exposed[a.IP] = true
	}
	if p.scratch {
		for a := range p.exposed.have {
			after.exposed[a] = true
		}
	}
	for a := range after.exposed {
		var to *desired.Network
		for _, key := range p.serving.exposed[a] {
			s, _ := p.want.Services.Get(key)
			n := p.networks[s.Network]
			if claims := p.serving.claims[hostKey{uint32(n.Domain()), a}]; len(claims) > 0 && claims[0] == key {
				to = n
				break
			}
		}
		if len(p.serving.exposed[a]) == 0 {
			delete(p.serving.exposed, a)
		}
		if to == nil {
			to = p.openAt(a)
		}
		var err error
		if to == nil {
			err = p.exposed.del(a)
		} else {
			err = p.exposed.put(a, toExposed(to))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
