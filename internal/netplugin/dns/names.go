package dns

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// names is the index over desired.DNS that questions are answered from. It takes
// in only the difference between two desired states, so that one container's change
// costs the same however many containers there are.
type names struct {
	mu     sync.RWMutex
	dns    desired.DNS
	ports  desired.Map[string, *desired.Port]
	nets   desired.Map[model.NetworkID, *desired.Network]
	askers map[netip.Addr]dnsClient
	zones  map[model.TenantName]*zone
}

// dnsClient is a local port, known by the source address of its questions.
type dnsClient struct {
	addr    netip.Addr
	network model.NetworkKey
}

// zone is one tenant's names.
type zone struct {
	byKind  [kinds]map[string][]*desired.DNSRecord
	byAddr  map[netip.Addr][]*desired.DNSRecord
	subnets map[model.NetworkKey]*desired.DNSNetwork
}

// The kinds of name, in order of precedence: services and groups, which operators
// name, come before containers, which name themselves, so that a container cannot
// take over the name of a service or group.
const (
	kindService = iota
	kindGroup
	kindContainer
	kinds
)

var kindText = [kinds]string{"service", "group", "container"}

func newNames() *names {
	return &names{askers: map[netip.Addr]dnsClient{}, zones: map[model.TenantName]*zone{}}
}

// update follows a desired state.
func (n *names) update(h desired.Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range h.DNS.Records.Diff(n.dns.Records) {
		if c.Had {
			n.zone(c.Old.Network.Tenant).remove(c.Old)
		}
		if c.Has {
			n.zone(c.New.Network.Tenant).add(c.New)
		}
	}
	for c := range h.DNS.Networks.Diff(n.dns.Networks) {
		z := n.zone(c.Key.Tenant)
		delete(z.subnets, c.Key)
		if c.Has {
			z.subnets[c.Key] = c.New
		}
	}
	moved := map[netip.Addr]dnsClient{}
	for c := range h.Ports.Diff(n.ports) {
		if c.Had {
			for _, a := range clientAddresses(n.nets, c.Old) {
				delete(n.askers, a)
			}
		}
		if c.Has {
			for _, a := range clientAddresses(h.Networks, c.New) {
				if a.IsValid() {
					moved[a] = dnsClient{a, c.New.Endpoint.Network}
				}
			}
		}
	}
	maps.Copy(n.askers, moved) // after all that left: an address may have changed hands
	for t, z := range n.zones {
		if len(z.byAddr) == 0 && len(z.subnets) == 0 {
			delete(n.zones, t)
		}
	}
	n.dns, n.ports, n.nets = h.DNS, h.Ports, h.Networks
}

// clientAddresses are the addresses by which the host's stack knows a port: its private ones,
// or on a native network its own.
func clientAddresses(nets desired.Map[model.NetworkID, *desired.Network], p *desired.Port) []netip.Addr {
	if n, ok := nets.Get(p.Network); ok && n.Routed && !p.PrivateNumber().IsValid() {
		return []netip.Addr{p.IPv4, p.IPv6}
	}
	return []netip.Addr{p.Private, p.Private6}
}

func (n *names) zone(t model.TenantName) *zone {
	z := n.zones[t]
	if z == nil {
		z = &zone{byAddr: map[netip.Addr][]*desired.DNSRecord{}, subnets: map[model.NetworkKey]*desired.DNSNetwork{}}
		for k := range z.byKind {
			z.byKind[k] = map[string][]*desired.DNSRecord{}
		}
		n.zones[t] = z
	}
	return z
}

func textsOf(r *desired.DNSRecord) [kinds]string {
	return [kinds]string{kindService: r.Service, kindGroup: r.Group, kindContainer: r.Name}
}

func (z *zone) add(r *desired.DNSRecord) {
	for k, text := range textsOf(r) {
		if text != "" {
			z.byKind[k][text] = append(z.byKind[k][text], r)
		}
	}
	for _, a := range []netip.Addr{r.IPv4, r.IPv6} {
		if a.IsValid() {
			z.byAddr[a] = append(z.byAddr[a], r)
		}
	}
}

func (z *zone) remove(r *desired.DNSRecord) {
	for k, text := range textsOf(r) {
		if text != "" {
			drop(z.byKind[k], text, r)
		}
	}
	for _, a := range []netip.Addr{r.IPv4, r.IPv6} {
		if a.IsValid() {
			drop(z.byAddr, a, r)
		}
	}
}

// drop takes a record out of a list whose order means nothing.
func drop[K comparable](m map[K][]*desired.DNSRecord, k K, r *desired.DNSRecord) {
	list := m[k]
	i := slices.Index(list, r)
	if i < 0 {
		return
	}
	last := len(list) - 1
	list[i], list[last] = list[last], nil
	if last == 0 {
		delete(m, k)
	} else {
		m[k] = list[:last]
	}
}

// asker finds the local port with a source address.
func (n *names) asker(addr netip.Addr) (dnsClient, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	a, ok := n.askers[addr]
	return a, ok
}

// lookupResult is the result of looking a name up for one tenant.
type lookupResult struct {
	exists bool         // the name exists, with or without addresses of this family
	ours   bool         // the name belongs to the tenant: no resolver is asked
	apex   string       // of the zone that the name is in, without the last dot
	addrs  []netip.Addr // of the family asked for, rotated

	// Of a name such as _http._tcp.web, which asks for a service's port.
	ports   []uint16
	target  string       // the service's name, the tenant's behind
	targets []netip.Addr // its addresses
}

// find looks a name up, given in lower case without the last dot, and returns at
// most limit of its addresses of one family. Where it has addresses on the
// asker's network, only those count: an endpoint of another network may be out
// of reach.
func (n *names) find(a dnsClient, name string, v6 bool, limit int) lookupResult {
	tenant := strings.ToLower(string(a.network.Tenant))
	n.mu.RLock()
	defer n.mu.RUnlock()
	z := n.zones[a.network.Tenant]
	f := lookupResult{apex: name}
	list := z.list(name)
	if rel, ok := strings.CutSuffix(name, "."+tenant); ok {
		f.ours, f.apex = true, tenant
		if len(list) == 0 {
			list = z.list(rel)
		}
	}
	if len(list) == 0 {
		if name == tenant {
			f.exists, f.ours = true, true
		} else {
			z.findPorts(&f, name, tenant)
		}
		return f
	}
	f.exists, f.ours = true, true
	near := slices.ContainsFunc(list, func(r *desired.DNSRecord) bool { return r.Network == a.network })
	start := rand.N(len(list))
	for i := range list {
		r := list[(start+i)%len(list)]
		addr := r.IPv4
		if v6 {
			addr = r.IPv6
		}
		if addr.IsValid() && (!near || r.Network == a.network) {
			if f.addrs = append(f.addrs, addr); len(f.addrs) == limit {
				break
			}
		}
	}
	return f
}

// srvProtocols are the protocols of services as names have them (RFC 2782).
var srvProtocols = map[string]model.Protocol{"_tcp": model.ProtoTCP, "_udp": model.ProtoUDP, "_sctp": model.ProtoSCTP}

// findPorts looks _PORT._PROTOCOL.SERVICE up, where PORT is a port's name or number.
// A service's own is any name of that form.
func (z *zone) findPorts(f *lookupResult, name, tenant string) {
	part := strings.SplitN(name, ".", 3)
	if z == nil || len(part) < 3 || !strings.HasPrefix(part[0], "_") {
		return
	}
	proto, ok := srvProtocols[part[1]]
	if !ok {
		return
	}
	service := part[2]
	list := z.byKind[kindService][service]
	if len(list) == 0 {
		service = strings.TrimSuffix(service, "."+tenant)
		list = z.byKind[kindService][service]
	}
	if len(list) == 0 {
		return
	}
	f.ours, f.target = true, service+"."+tenant
	r := list[0] // a service's name is its tenant's only one
	for _, p := range r.Ports {
		if p.Protocol == proto && (part[0] == "_"+strconv.Itoa(int(p.Port)) || p.Name != "" && part[0] == "_"+p.Name) {
			f.ports, f.exists = append(f.ports, p.Port), true
		}
	}
	for _, a := range []netip.Addr{r.IPv4, r.IPv6} {
		if a.IsValid() {
			f.targets = append(f.targets, a)
		}
	}
}

func (z *zone) list(name string) []*desired.DNSRecord {
	if z == nil {
		return nil
	}
	for _, names := range z.byKind {
		if list := names[name]; len(list) > 0 {
			return list
		}
	}
	return nil
}

// reverse returns the names of an address, sorted, with the tenant's behind each;
// ours reports whether the address lies in one of the tenant's networks.
func (n *names) reverse(a dnsClient, addr netip.Addr) (out []string, ours bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	z := n.zones[a.network.Tenant]
	if z == nil {
		return nil, false
	}
	for _, r := range z.byAddr[addr] {
		for _, name := range []string{r.Service, r.Name} {
			if name != "" {
				out = append(out, name+"."+strings.ToLower(string(a.network.Tenant)))
			}
		}
	}
	slices.Sort(out)
	if len(out) > 0 {
		return slices.Compact(out), true
	}
	for _, s := range z.subnets {
		if s.Subnet.Contains(addr) || s.Subnet6.Contains(addr) {
			return nil, true
		}
	}
	return nil, false
}

// Name is one name of a tenant.
type Name struct {
	Tenant    model.TenantName `json:"tenant"`
	Name      string           `json:"name"`
	Kind      string           `json:"kind"` // service, group or container
	Addresses []netip.Addr     `json:"addresses"`
}

// Names lists all names, sorted by tenant, kind and name.
func (s *Server) Names() []Name {
	s.names.mu.RLock()
	defer s.names.mu.RUnlock()
	out := []Name{}
	for t, z := range s.names.zones {
		for k, byName := range z.byKind {
			for text, list := range byName {
				n := Name{Tenant: t, Name: text, Kind: kindText[k], Addresses: []netip.Addr{}}
				for _, r := range list {
					for _, a := range []netip.Addr{r.IPv4, r.IPv6} {
						if a.IsValid() {
							n.Addresses = append(n.Addresses, a)
						}
					}
				}
				slices.SortFunc(n.Addresses, netip.Addr.Compare)
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}
