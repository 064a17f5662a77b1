package hostsync

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// exposed follows the virtual addresses to which the host's own stack has routes by the data
// plane, at the cost of what differs unless one of them comes or goes.
type exposed struct {
	byPlane func(model.ServiceKey) bool // services whose shared addresses are among them
	ranges  []netip.Prefix              // that have routes as a whole
	last    desired.Map[model.ServiceKey, *desired.Service]
	nodes   desired.Map[netip.Addr, struct{}]
	list    []hoststack.Service // sorted; another one when it changes
	six     bool                // one of them is of IPv6
}

// addrsOf are the addresses at which a service is exposed, but for nodes', sorted, each once.
func (x *exposed) addrsOf(s *desired.Service) (out []netip.Addr) {
	if s == nil || !s.Exposed {
		return nil
	}
	for _, a := range []netip.Addr{s.IPv4, s.IPv6} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	for _, f := range s.Frontends {
		if _, node := x.nodes.Get(f.Addr); node || f.Addr.IsUnspecified() || !x.byPlane(s.Key) {
			continue
		}
		if !slices.ContainsFunc(x.ranges, func(p netip.Prefix) bool { return p.Contains(f.Addr) }) {
			out = append(out, f.Addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// follow notes the services of the desired state, and nodes' addresses. Shared addresses count
// of services that the data plane serves, outside of ranges; changed says that byPlane may
// return something else than at the last call.
func (x *exposed) follow(now desired.Map[model.ServiceKey, *desired.Service], nodes desired.Map[netip.Addr, struct{}], ranges []netip.Prefix, byPlane func(model.ServiceKey) bool, changed bool) {
	same := !changed && slices.Equal(ranges, x.ranges)
	for range nodes.Diff(x.nodes) {
		same = false
		break
	}
	x.byPlane, x.ranges, x.nodes = byPlane, ranges, nodes
	for c := range now.Diff(x.last) {
		same = same && slices.Equal(x.addrsOf(c.Old), x.addrsOf(c.New))
	}
	if x.last = now; same {
		return
	}
	x.list, x.six = nil, false
	for key, s := range now.All() {
		for _, a := range x.addrsOf(s) {
			own := s.IPv4 == a || s.IPv6 == a // others are served to clients outside without a route
			x.list = append(x.list, hoststack.Service{Name: key.String(), Addr: a, Optional: !own})
			x.six = x.six || a.Is6()
		}
	}
	slices.SortFunc(x.list, func(a, b hoststack.Service) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Name, b.Name)) })
	x.list = slices.CompactFunc(x.list, func(a, b hoststack.Service) bool { return a.Addr == b.Addr }) // that they share
}

// source4 is the host's IPv4 address that other hosts can tell apart: its tunnel address.
func source4(vtep netip.Addr) netip.Addr {
	if vtep.Is4() {
		return vtep
	}
	return netip.Addr{}
}
