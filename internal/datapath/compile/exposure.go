package compile

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// exposure decides which services hosts and clients outside reach: of those with an
// address in common the first by key.
//
// Takes: services with their networks.
// Gives: whether a service is exposed; marks services that want the same address.
type exposure struct {
	at    map[netip.Addr]set[*service] // services that want to be exposed there
	dirty *marks[*service]
}

// wantsExposure reports whether hosts and clients outside are to reach a service. Addresses of
// different tenants may be equal, so only tenant default's can be, with the orchestrator's, whose
// addresses are unique in the cluster, on whichever tenant's network.
func (s *service) wantsExposure() bool { return s.key.Tenant == model.DefaultTenant }

// setAddresses follows at which addresses a service wants to be exposed, and has those
// looked at again who want one of them too.
func (ex *exposure) setAddresses(s *service) {
	var want [2]netip.Addr
	if s.rec != nil && s.hasAllPorts() && s.net.id != 0 && s.wantsExposure() && s.net.exposes() {
		want[0], want[1] = s.rec.AddrsByFamily()
	}
	if want == s.wantedAddrs {
		return
	}
	rivals := func() {
		for _, a := range s.wantedAddrs {
			for o := range ex.at[a] {
				ex.dirty.add(o)
			}
		}
	}
	rivals()
	for _, a := range s.wantedAddrs {
		removeFrom(ex.at, a, s)
	}
	s.wantedAddrs = want
	for _, a := range want {
		if a.IsValid() {
			addTo(ex.at, a, s)
		}
	}
	rivals()
}

// isExposed reports whether a service is exposed: one that wants to be, and has its
// addresses before all others that want one of them; and one that shares its addresses with
// others. The text says who has one.
func (ex *exposure) isExposed(s *service) (bool, string) {
	if s.wantedAddrs == ([2]netip.Addr{}) {
		return !s.hasAllPorts() && s.wantsExposure() && s.net.exposes(), ""
	}
	first := s
	for _, a := range s.wantedAddrs {
		for o := range ex.at[a] {
			if o.key.String() < first.key.String() {
				first = o
			}
		}
	}
	if first != s {
		return false, fmt.Sprintf("neither hosts nor clients outside reach it: it has an address in common with service %s", first.key)
	}
	return true, ""
}
