package control

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// fitService refuses, with model.ErrExhausted, a service that hosts could not hold
// beside the others, or whose providers of now are more than are chosen among. It
// goes by what the mirror knows, and what this transaction has put already: what is
// committed at the same moment may pass beside it, and containers that come later are
// more providers. There the host's status tells. What takes no more than it did is
// not refused.
func (sv *ServiceView) fitService(s model.Service, cl *claim) error {
	sv.mu.RLock()
	defer sv.mu.RUnlock()
	old, there := sv.serviceRows.all[s.Key]
	all := len(sv.serviceRows.all) + len(sv.kubernetes.clusterServiceRows.all) + cl.services
	fronts := sv.serviceFronts + sv.kubernetes.clusterFronts + cl.fronts
	grows := s.Fronts() - old.Fronts()
	switch {
	case !there && all >= model.MaxServices:
		return model.Errorf(model.ErrExhausted, "there are %d services, as many as a host holds", all)
	case grows > 0 && fronts+grows > model.MaxFronts:
		return model.Errorf(model.ErrExhausted, "ports: with %d at its addresses there would be %d at those of all services, more than the %d that a host holds",
			s.Fronts(), fronts+grows, model.MaxFronts)
	}
	if n := sv.countProviders(s); n > model.MaxProviders && (!there || !slices.Equal(old.Selectors, s.Selectors)) {
		return model.Errorf(model.ErrExhausted, "selectors: %d endpoints of network %q have all of these labels, and connections are spread over at most %d: choose fewer by another label",
			n, s.NetworkKey(), model.MaxProviders)
	}
	if !there {
		cl.services++
	}
	cl.fronts += grows
	return nil
}

// countProviders counts the providers of a service, if they may be more than
// model.MaxProviders.
func (sv *ServiceView) countProviders(s model.Service) (n int) {
	some := sv.withLabel(s)
	if len(some) <= model.MaxProviders {
		return len(some)
	}
	for k := range some {
		if s.Selects(sv.endpoints.endpoints[k].Labels) {
			n++
		}
	}
	return n
}
