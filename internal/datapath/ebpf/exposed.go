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
		Net: uint32(n.ID), Domain: uint32(n.Domain()), Subnet: ipv4Word(n.Subnet.Masked().Addr()), Mask: maskWord(n.Subnet),
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
func (r *serviceRun) expose(key model.ServiceKey, old, now []hostKey) {
	if slices.Equal(old, now) {
		return
	}
	for _, a := range old {
		r.s.exposed[a.IP] = slices.DeleteFunc(r.s.exposed[a.IP], func(k model.ServiceKey) bool { return k == key })
		r.exposedServices[a.IP] = true
		r.s.generations.add(a)
	}
	for _, a := range now {
		r.s.exposed[a.IP] = append(r.s.exposed[a.IP], key)
		slices.SortFunc(r.s.exposed[a.IP], func(a, b model.ServiceKey) int { return strings.Compare(a.String(), b.String()) })
		r.exposedServices[a.IP] = true
		r.s.generations.add(a)
	}
}

// putExposed lets addresses lead clients outside where they now do: to the first
// service that is exposed there, and has the address in its own domain.
func (r *serviceRun) putExposed() error {
	for a := range r.moved {
		r.exposedServices[a.IP] = true
	}
	if r.run.scratch {
		for a := range r.maps.Exposed.have {
			r.exposedServices[a] = true
		}
	}
	for a := range r.exposedServices {
		var to *desired.Network
		for _, key := range r.s.exposed[a] {
			s, _ := r.run.want.Services.Get(key)
			n := r.run.networks[s.Network]
			if claims := r.s.vipOwners[hostKey{uint32(n.Domain()), a}]; len(claims) > 0 && claims[0] == key {
				to = n
				break
			}
		}
		if len(r.s.exposed[a]) == 0 {
			delete(r.s.exposed, a)
		}
		if to == nil {
			to = r.openAt(a)
		}
		var err error
		if to == nil {
			err = r.maps.Exposed.del(a)
		} else {
			err = r.maps.Exposed.put(a, toExposed(to))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
