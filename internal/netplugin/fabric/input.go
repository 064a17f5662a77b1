package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
)

// Input is what this host is, as of a pass of the data plane.
type Input struct {
	Settings     *model.Bgp       // nil = the host does not speak
	OtherTenants []model.HostName // hosts with the same router address, which come first
	Desired      desired.Host     // as the data plane holds it
	Refused      map[string]bool  // ports of it that the data plane could not make
	Machines     []netip.Addr     // of the cluster: hosts', the control plane's
	Networks     []netip.Prefix   // of the cluster: the subnets of all tenants' networks
	VLANs        []model.Network  // of the cluster: those of encap vlan, in order
	Routers      []netip.Prefix   // of the cluster: networks in which hosts speak BGP, and routers
	Allowed      model.Prefixes   // what may be announced; none = what networks of cluster administrators have
	Underlay     []netip.Prefix   // this host's underlay, and its gateways and name servers
}

// hostPrefix is a prefix that this host has.
type hostPrefix struct {
	bgp.Announcement
	private netip.Addr // of the container whose address it is; zero = a service's
}

// hostPrefixes is what a host has, by a desired state.
type hostPrefixes struct {
	private     string // the interface of egress; empty = there is none
	device      string // the interface that gets routerip; empty = an uplink
	all         []hostPrefix
	protected   []netip.Prefix
	networks    []netip.Prefix // of those, containers'
	ambiguities []ambiguity
	withheld    []string // sentences, each beginning with the address that is not announced
}

// ambiguity is a network of which this host tells addresses, and another tenant's with such
// addresses, of which other hosts may tell: none knows the other's containers.
type ambiguity struct{ network, other model.NetworkKey }

func (h *hostPrefixes) equal(o *hostPrefixes) bool {
	return slices.Equal(h.ambiguities, o.ambiguities) && h.private == o.private && h.device == o.device && slices.Equal(h.all, o.all) && slices.Equal(h.withheld, o.withheld) && slices.Equal(h.protected, o.protected)
}

// hostPrefixesOf works out what this host has. Only networks that are joined are spoken of: the
// others' containers have a router of their own.
func hostPrefixesOf(in Input) *hostPrefixes {
	h := &hostPrefixes{}
	pic, b := in.Desired, in.Settings
	h.device = pic.Router
	if b == nil {
		return h
	}
	if pic.HostNAT != nil && pic.FwdMode == model.FwdRouting {
		h.private = pic.HostNAT.Interface
		told := map[model.NetworkID]*desired.Network{}
		for name, port := range pic.Ports.All() {
			n, ok := pic.Networks.Get(port.Network)
			if !ok || in.Refused[name] || n.Encap != model.EncapVLAN || n.Joined == 0 {
				continue
			}
			for _, a := range [][2]netip.Addr{{port.IPv4, port.Private}, {port.IPv6, port.Private6}} {
				if a[0].IsValid() && a[1].IsValid() {
					if h.add(in, n, a[0], a[1], port.Endpoint.Network.Tenant) {
						told[n.ID] = n
					}
				}
			}
		}
		for _, id := range slices.Sorted(maps.Keys(told)) {
			h.noteAmbiguity(told[id], in.VLANs)
		}
		for key, s := range pic.Services.All() {
			for _, a := range []netip.Addr{s.IPv4, s.IPv6} {
				if a.IsValid() && s.Exposed && provided(s, a.Is6()) {
					n, _ := pic.Networks.Get(s.Network)
					h.add(in, n, a, netip.Addr{}, key.Tenant)
				}
			}
		}
	}
	slices.SortFunc(h.all, func(a, b hostPrefix) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Tenant, b.Tenant), a.private.Compare(b.private))
	})
	slices.Sort(h.withheld)
	h.protect(in)
	return h
}

// noteAmbiguity notes the first network of another tenant that may have addresses of one.
func (h *hostPrefixes) noteAmbiguity(n *desired.Network, all []model.Network) {
	for _, o := range all {
		if o.Key.Tenant != n.Key.Tenant && (overlap(n.Subnet, o.Subnet) || overlap(n.Subnet6, o.Subnet6)) {
			h.ambiguities = append(h.ambiguities, ambiguity{n.Key, o.Key})
			return
		}
	}
}

func overlap(a, b netip.Prefix) bool { return a.IsValid() && b.IsValid() && a.Overlaps(b) }

// add notes an address of a network, which may be nil, unless it may not be announced.
func (h *hostPrefixes) add(in Input, n *desired.Network, a, private netip.Addr, t model.TenantName) bool {
	b := in.Settings
	if why := in.whyNotAnnounced(n, a); why != "" {
		h.withheld = append(h.withheld, fmt.Sprintf("%s of tenant %s is not announced: %s", a, t, why))
		return false
	}
	hop := b.RouterIP.Addr()
	if a.Is6() {
		hop = b.RouterIP6.Addr()
	}
	if hop.IsValid() {
		h.all = append(h.all, hostPrefix{bgp.Announcement{Prefix: netip.PrefixFrom(a, a.BitLen()), NextHop: hop, Tenant: t}, private})
	}
	return true
}

// whyNotAnnounced says why an address of a network must not be announced; empty = it may.
func (in Input) whyNotAnnounced(n *desired.Network, a netip.Addr) string {
	within := func(p netip.Prefix) bool { return p.IsValid() && p.Masked().Contains(a) }
	switch {
	case slices.Contains(in.Machines, a):
		return "it is the address of a machine of the cluster"
	case slices.ContainsFunc(in.Settings.Networks(), within), slices.ContainsFunc(in.Routers, within):
		return "it lies in a network in which hosts speak BGP, or is a router's address"
	case slices.ContainsFunc(in.Underlay, within):
		return "this host needs its own way there: it is the underlay, a gateway or a name server"
	case len(in.Allowed) > 0 && !in.Allowed.Contains(netip.PrefixFrom(a, a.BitLen())):
		return "it lies in none of the prefixes that may be announced ('netctl global set --tenant-prefixes')"
	case len(in.Allowed) == 0 && n != nil && n.ByTenant:
		return fmt.Sprintf("no cluster-admin created network %s, nor allowed its prefix ('netctl global set --tenant-prefixes')", n.Key)
	}
	return ""
}

// provided reports whether a backend here takes new connections.
func provided(s *desired.Service, six bool) bool {
	pool := s.Pools().Of(six, desired.TrafficLocal)
	for _, b := range s.Backends.All() {
		if pool.Has(b) {
			return true
		}
	}
	return false
}

// protect notes what no learned route may lead away.
func (h *hostPrefixes) protect(in Input) {
	add := func(p netip.Prefix) {
		if p.IsValid() {
			h.protected = append(h.protected, p.Masked())
		}
	}
	one := func(a netip.Addr) {
		if a.IsValid() {
			add(netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		}
	}
	pic := in.Desired
	for _, n := range pic.Networks.All() {
		add(n.Subnet)
		add(n.Subnet6)
	}
	for _, p := range in.Networks {
		add(p)
	}
	h.networks = slices.Clone(h.protected)
	slices.SortFunc(h.networks, netip.Prefix.Compare)
	for _, s := range pic.Services.All() {
		one(s.IPv4)
		one(s.IPv6)
		for _, f := range s.Frontends {
			if !f.Addr.IsUnspecified() {
				one(f.Addr)
			}
		}
	}
	for _, p := range pic.ServiceRanges {
		add(p)
	}
	if p := pic.HostNAT; p != nil {
		add(p.Subnet)
		add(p.Subnet6)
	}
	for a := range pic.Tunnels.All() {
		one(a)
	}
	for a := range pic.Nodes.All() {
		one(a)
	}
	for a := range pic.NodeAddrs.All() {
		one(a)
	}
	one(pic.VTEP)
	for _, p := range in.Underlay {
		if p.IsSingleIP() { // the underlay itself has routes that are more specific
			add(p)
		}
	}
	for _, a := range in.Machines {
		one(a)
	}
	slices.SortFunc(h.protected, netip.Prefix.Compare)
	h.protected = slices.Compact(h.protected)
}

// choose picks of equal prefixes of several tenants the one that has it already by
// owners, else the first by name: the others have neither a way in nor their own address
// outside. It returns who has which, and of the others the sentence.
func (h *hostPrefixes) choose(owners map[netip.Prefix]model.TenantName) (chosen []hostPrefix, now map[netip.Prefix]model.TenantName, refused []string) {
	now = make(map[netip.Prefix]model.TenantName, len(h.all))
	for _, x := range h.all { // in order
		if _, taken := now[x.Prefix]; !taken || owners[x.Prefix] == x.Tenant {
			now[x.Prefix] = x.Tenant
		}
	}
	seen := map[netip.Prefix]bool{}
	for _, x := range h.all {
		switch {
		case now[x.Prefix] != x.Tenant:
			refused = append(refused, fmt.Sprintf("%s of tenant %s is not announced: tenant %s has the same", x.Prefix.Addr(), x.Tenant, now[x.Prefix]))
		case !seen[x.Prefix]:
			seen[x.Prefix] = true
			chosen = append(chosen, x)
		}
	}
	return chosen, now, refused
}
