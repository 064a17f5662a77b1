package hostsync

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// announceable are the load balancers' addresses for which this host could answer its neighbours:
// those at which its stack leads to somebody, or refuses for all, by the service's policy
// for clients outside.
type announceable struct {
	last desired.Map[model.ServiceKey, *desired.Service]
	of   map[model.ServiceKey][]netip.Addr
}

// follow notes services, at the cost of what differs; not served = none. It tells whether
// something may have changed.
func (f *announceable) follow(now desired.Map[model.ServiceKey, *desired.Service], served bool) (changed bool) {
	if !served {
		now = desired.Map[model.ServiceKey, *desired.Service]{}
	}
	if f.of == nil {
		f.of = map[model.ServiceKey][]netip.Addr{}
	}
	for c := range now.Diff(f.last) {
		had := len(f.of[c.Key]) > 0
		delete(f.of, c.Key)
		if c.Has && len(c.New.Balanced) > 0 {
			f.of[c.Key] = announceableOf(c.New)
		}
		changed = changed || had || len(f.of[c.Key]) > 0
	}
	f.last = now
	return changed
}

func announceableOf(s *desired.Service) (out []netip.Addr) {
	pools := s.Pools()
	for _, a := range s.Balanced {
		for _, face := range s.Frontends {
			if face.Addr != a {
				continue
			}
			local := face.ExternalPolicy == desired.TrafficLocal || face.ExternalPolicy == desired.TrafficLocalDrop
			pool, somebody := pools.Of(a.Is6(), face.ExternalPolicy), false
			for _, b := range s.Backends.All() {
				somebody = somebody || pool.Has(b)
			}
			if somebody || !local {
				out = append(out, a)
			}
			break // all ports of an address have one policy
		}
	}
	return out
}

func (f *announceable) addrs() (out []netip.Addr) {
	for _, all := range f.of {
		out = append(out, all...)
	}
	return out
}
