package hostsync

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// exposed follows the virtual addresses that the host's own stack leads to the data
// plane, at the cost of what differs unless one of them comes or goes.
type exposed struct {
	frontends bool // the ones that services share too
	last      desired.Map[model.ServiceKey, *desired.Service]
	nodes     desired.Map[netip.Addr, struct{}]
	list      []hoststack.Service // sorted; another one when it changes
	six       bool                // one of them is of IPv6
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
		if _, node := x.nodes.Get(f.Addr); x.frontends && !node && !f.Addr.IsUnspecified() {
			out = append(out, f.Addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// follow notes the services of a picture, and nodes' addresses; faces says whether the data
// plane is led to at addresses that they share too.
func (x *exposed) follow(now desired.Map[model.ServiceKey, *desired.Service], nodes desired.Map[netip.Addr, struct{}], faces bool) {
	same := faces == x.frontends
	for range nodes.Diff(x.nodes) {
		same = false
		break
	}
	x.frontends, x.nodes = faces, nodes
	for c := range now.Diff(x.last) {
		same = same && slices.Equal(x.addrsOf(c.Old), x.addrsOf(c.New))
	}
	if x.last = now; same {
		return
	}
	x.list, x.six = nil, false
	for key, s := range now.All() {
		for _, a := range x.addrsOf(s) {
			x.list = append(x.list, hoststack.Service{Name: key.String(), Addr: a})
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
