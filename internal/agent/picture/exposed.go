package picture

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/hostnet"
	"github.com/contiv/netplugin/v2/internal/model"
)

// exposed follows the virtual addresses that the host's own stack leads to the data
// plane, at the cost of what differs unless one of them comes or goes.
type exposed struct {
	last desired.Map[model.ServiceKey, *desired.Service]
	list []hostnet.Service // sorted; another one when it changes
	six  bool              // one of them is of IPv6
}

// addrsOf are the addresses at which a service is exposed.
func addrsOf(s *desired.Service) (v4, v6 netip.Addr) {
	if s == nil || !s.Exposed {
		return
	}
	return s.IPv4, s.IPv6
}

func (x *exposed) follow(now desired.Map[model.ServiceKey, *desired.Service]) {
	same := true
	for c := range now.Diff(x.last) {
		old4, old6 := addrsOf(c.Old)
		new4, new6 := addrsOf(c.New)
		same = same && old4 == new4 && old6 == new6
	}
	if x.last = now; same {
		return
	}
	x.list, x.six = nil, false
	for key, s := range now.All() {
		v4, v6 := addrsOf(s)
		for _, a := range []netip.Addr{v4, v6} {
			if a.IsValid() {
				x.list = append(x.list, hostnet.Service{Name: key.String(), Addr: a})
				x.six = x.six || a.Is6()
			}
		}
	}
	slices.SortFunc(x.list, func(a, b hostnet.Service) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Name, b.Name)) })
}

// source4 is the host's address of IPv4 that other hosts can tell apart: that of its
// tunnels.
func source4(vtep netip.Addr) netip.Addr {
	if vtep.Is4() {
		return vtep
	}
	return netip.Addr{}
}
