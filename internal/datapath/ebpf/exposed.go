package ebpf

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Clients outside ask for virtual addresses without a network: the programs find it by
// the address, and where services of several domains share that, by the port.

// exposedKey is where they ask: struct exposed_key of bpf/services.h. Without port and
// protocol it is an address.
type exposedKey struct {
	IP         addr
	Port       uint16
	Proto, Pad uint8
}

// exposedEntry is where an exposed service is: struct exposed of bpf/services.h.
type exposedEntry struct {
	Net, Domain    uint32
	Subnet, Mask   uint32 // network order
	Subnet6, Mask6 addr
	Ports          uint32 // exposedPorts, exposedNode
}

const (
	exposedPorts = 1 // ports of the address have entries
	exposedNode  = 2 // beside it: and so have those of all nodes' addresses
)

func toExposed(n *desired.Network, ports uint32) exposedEntry {
	return exposedEntry{
		Net: uint32(n.ID), Domain: uint32(n.Domain()), Subnet: ipv4Word(n.Subnet.Masked().Addr()), Mask: maskWord(n.Subnet),
		Subnet6: toAddr(n.Subnet6.Masked().Addr()), Mask6: toMask(n.Subnet6), Ports: ports,
	}
}

func exposedAddrs(vips []domainAddr) (out []exposedKey) {
	for _, a := range vips {
		out = append(out, exposedKey{IP: a.IP})
	}
	return out
}

// expose moves a service's claims to addresses that clients outside ask for.
func (r *serviceRun) expose(key model.ServiceKey, old, now []domainAddr) {
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
		slices.SortFunc(r.s.exposed[a.IP], compareServices)
		r.exposedServices[a.IP] = true
		r.s.generations.add(a)
	}
}

// putExposed lets addresses and their ports lead clients outside where they now do: an
// address to the first service that is exposed there, and has it in its own domain.
func (r *serviceRun) putExposed() error {
	for a := range r.moved {
		r.exposedServices[a.IP], r.exposedVIPs[a.IP] = true, true
	}
	if r.run.scratch {
		for k := range r.maps.Exposed.have {
			if k.Proto == 0 {
				r.exposedServices[k.IP] = true
			}
		}
	}
	stale, err := r.putExposedPorts()
	if err != nil {
		return err
	}
	for a := range r.exposedServices {
		var to *desired.Network
		for _, key := range r.s.exposed[a] {
			s, _ := r.run.want.Services.Get(key)
			n := r.run.networks[s.Network]
			if claims := r.s.vipOwners[domainAddr{uint32(n.Domain()), a}]; len(claims) > 0 && claims[0] == key {
				to = n
				break
			}
		}
		if len(r.s.exposed[a]) == 0 {
			delete(r.s.exposed, a)
		}
		ports := uint32(0)
		if to == nil {
			to, ports = r.openAt(a), r.exposedBy(a)
		}
		if to == nil {
			stale = append(stale, exposedKey{IP: a})
		} else if err := r.putExposedAt("address "+a.vip().String()+" of services", exposedKey{IP: a}, toExposed(to, ports)); err != nil {
			return err
		}
	}
	for _, k := range stale {
		if err := r.maps.Exposed.del(k); err != nil {
			return err
		}
	}
	return nil
}

// putExposedAt writes an entry. Without room for it clients outside are refused there, and an
// object has the problem.
func (r *serviceRun) putExposedAt(object string, k exposedKey, to exposedEntry) error {
	err := r.maps.Exposed.put(k, to)
	if err != nil && !fatal(err) {
		r.run.problem(object, err)
		return nil
	}
	return err
}

// sharedBy is the address of the shared VIP that leads clients outside at an address: all nodes' are one.
func (r *serviceRun) sharedBy(a addr) addr { return toAddr(r.run.want.FrontendAddr(a.vip())) }

// exposedBy reports in which entries ports of an address are.
func (r *serviceRun) exposedBy(a addr) uint32 {
	switch by := r.sharedBy(a); {
	case !r.s.sharedVIPs.severalDomains[by]:
		return 0
	case by != a:
		return exposedPorts | exposedNode
	}
	return exposedPorts
}

// putExposedPorts lets ports of addresses that exposed services of several domains share lead
// clients outside to the first service with the port. It returns the entries that are to go
// once no address leads to them.
func (r *serviceRun) putExposedPorts() (stale []exposedKey, err error) {
	v := &r.s.sharedVIPs
	changed := map[addr]map[addr]bool{} // shared VIPs, by sharedBy
	note := func(a addr) {
		by := r.sharedBy(a)
		if changed[by] == nil {
			changed[by] = map[addr]bool{}
		}
		changed[by][a] = true
	}
	for a := range r.exposedVIPs {
		note(a)
	}
	for k := range r.frontends {
		note(k.at.IP)
	}
	for by, vips := range changed {
		if ip := by.vip(); ip.IsUnspecified() {
			vips[by] = true
			for n := range r.run.want.NodeAddrs.All() {
				if a := toAddr(n); n.Is6() == ip.Is6() && len(v.open[a])+len(v.exposedPorts[a]) > 0 {
					vips[a] = true
				}
			}
		}
		several := r.inSeveralDomains(vips)
		if several != v.severalDomains[by] {
			v.severalDomains[by] = several
			for _, a := range r.addrsOf(domainAddr{IP: by}) {
				r.exposedServices[a.IP] = true
			}
		}
		for a := range vips {
			had := v.exposedPorts[a]
			delete(v.exposedPorts, a)
			if several {
				if err := r.putExposedPortsOf(a); err != nil {
					return nil, err
				}
			}
			for k := range had {
				if !v.exposedPorts[a][k] {
					stale = append(stale, k)
				}
			}
		}
		if !several {
			delete(v.severalDomains, by)
		}
	}
	if r.run.scratch {
		for k := range r.maps.Exposed.have {
			if k.Proto != 0 && !r.maps.Exposed.wanted[k] {
				stale = append(stale, k)
			}
		}
	}
	return stale, nil
}

// inSeveralDomains reports whether services of several domains are exposed at shared VIPs.
func (r *serviceRun) inSeveralDomains(vips map[addr]bool) bool {
	first := desired.Domain(0)
	for a := range vips {
		for _, key := range r.s.sharedVIPs.open[a] {
			s, _ := r.run.want.Services.Get(key)
			d := r.run.networks[s.Network].Domain()
			if first != 0 && d != first {
				return true
			}
			first = d
		}
	}
	return false
}

// putExposedPortsOf writes the ports of a shared VIP.
func (r *serviceRun) putExposedPortsOf(a addr) error {
	ports := map[exposedKey]bool{}
	r.s.sharedVIPs.exposedPorts[a] = ports
	for _, key := range r.s.sharedVIPs.open[a] {
		s, _ := r.run.want.Services.Get(key)
		n := r.run.networks[s.Network]
		if len(r.s.vipOwners[domainAddr{uint32(n.Domain()), a}]) > 0 {
			continue
		}
		for f := range r.s.of[key].frontends {
			k := exposedKey{IP: a, Port: f.port, Proto: f.proto}
			if f.at.IP != a || f.port == 0 || ports[k] {
				continue
			}
			ports[k] = true
			if err := r.putExposedAt("service "+key.String(), k, toExposed(n, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}
