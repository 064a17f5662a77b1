package control

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/ipam"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// space is what is known of a network's addresses: who owns them by the
// mirror, and which are pending, that is, chosen by a use-case of this process
// whose commit the mirror has not delivered yet. v4 and v6 contain both. The
// view's lock guards it.
type space struct {
	owners   map[netip.Addr]owned
	pending  map[netip.Addr]int                         // by how many use-cases
	reserved map[model.HostName]map[netip.Addr]struct{} // by a host, without an endpoint
	net      model.Network                              // that v4 and v6 were made for
	v4, v6   *ipam.Space                                // nil before build, or without such a subnet
}

type owned struct {
	tables.Address
	create store.Revision
}

// enter records what the mirror says of an address.
func (s *space) enter(a netip.Addr, owner *tables.Address, create store.Revision) {
	if r := s.owners[a].Reservation; r != nil {
		if delete(s.reserved[r.Host], a); len(s.reserved[r.Host]) == 0 {
			delete(s.reserved, r.Host)
		}
	}
	if owner != nil {
		if r := owner.Reservation; r != nil {
			if s.reserved[r.Host] == nil {
				s.reserved[r.Host] = map[netip.Addr]struct{}{}
			}
			s.reserved[r.Host][a] = struct{}{}
		}
		s.owners[a] = owned{*owner, create}
	} else {
		delete(s.owners, a)
	}
	s.mark(a)
}

// mark brings v4 or v6 in line with owners and held.
func (s *space) mark(a netip.Addr) {
	sp := s.family(a.Is6())
	if sp == nil {
		return
	}
	if _, has := s.owners[a]; has || s.pending[a] > 0 {
		sp.Add(a)
	} else {
		sp.Remove(a)
	}
}

func (s *space) family(v6 bool) *ipam.Space {
	if v6 {
		return s.v6
	}
	return s.v4
}

// build makes v4 and v6 for a network, unless they are for it already.
func (s *space) build(n model.Network) {
	if s.net.ID == n.ID && s.net.Subnet == n.Subnet && s.net.Subnet6 == n.Subnet6 {
		return
	}
	s.net, s.v4, s.v6 = n, nil, nil
	if n.Subnet.IsValid() {
		s.v4 = ipam.NewSpace(n.Subnet)
	}
	if n.Subnet6.IsValid() {
		s.v6 = ipam.NewSpace(n.Subnet6)
	}
	newest := map[bool]owned{}
	for a, o := range s.owners {
		s.mark(a)
		if v6 := a.Is6(); o.create > newest[v6].create {
			newest[v6] = o
		}
	}
	for a := range s.pending {
		s.mark(a)
	}
	for v6, o := range newest { // go on where the last process stopped
		if sp := s.family(v6); sp != nil {
			sp.SetCursor(cursorAny, o.Addr)
			if o.Group != "" {
				sp.SetCursor(string(o.Group), o.Addr)
			}
		}
	}
}

// cursorAny is the cursor of addresses outside groups' pools; the others have
// the name of their group.
const cursorAny = ""

// numbers are the used numbers of a kind; the embedded set contains pending ones too.
type numbers struct {
	ipam.Numbers
	used    ipam.Numbers
	pending map[uint32]int
}

func newNumbers() *numbers { return &numbers{pending: map[uint32]int{}} }

func (n *numbers) enter(x uint32, used bool) {
	if used {
		n.used.Add(x)
	} else {
		n.used.Remove(x)
	}
	n.mark(x)
}

func (n *numbers) mark(x uint32) {
	if n.used.Has(x) || n.pending[x] > 0 {
		n.Add(x)
	} else {
		n.Remove(x)
	}
}

// allowed returns the addresses of a network that may be handed out to the
// endpoints of a group ("" = none), and the cursor to look for them with: its
// pool if it has one, else all but the gateway and the pools.
func allowed(n model.Network, v6 bool, pools map[model.GroupName]model.AddrRange, group model.GroupName) (ipam.Ranges, string) {
	if v6 {
		if !n.Subnet6.IsValid() {
			return nil, cursorAny
		}
		return ipam.Ranges{model.HostRange(n.Subnet6)}.Minus(ipam.One(n.Gateway6)), cursorAny
	}
	if !n.Subnet.IsValid() {
		return nil, cursorAny
	}
	if pool, ok := pools[group]; ok && group != "" {
		return ipam.Ranges{pool}, string(group)
	}
	return window(n).Minus(ipam.One(n.Gateway)).Minus(poolRanges(pools)), cursorAny
}

// window returns the IPv4 addresses of a network that allocation may touch.
func window(n model.Network) ipam.Ranges {
	if n.Range.IsValid() {
		return ipam.Ranges{n.Range}
	}
	return ipam.Ranges{model.HostRange(n.Subnet)}
}

func poolRanges(pools map[model.GroupName]model.AddrRange) ipam.Ranges {
	rs := make([]model.AddrRange, 0, len(pools))
	for _, r := range pools {
		rs = append(rs, r)
	}
	return ipam.Union(rs...)
}
