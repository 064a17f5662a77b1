package analysis

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Opening is how clients outside get to an endpoint.
type Opening string

// The openings.
const (
	OpeningVLAN      Opening = "vlan"             // they are on its VLAN, or behind the VLAN's gateway
	OpeningRouted    Opening = "routed-network"   // with a route to its network by a host
	OpeningPublished Opening = "published-port"   // at a port of its host
	OpeningService   Opening = "service-address"  // with a route to the service's address by a host
	OpeningBalancer  Opening = "load-balancer"    // at an address of the service's load balancer
	OpeningExternal  Opening = "external-address" // at another address that leads to hosts
	OpeningNodePort  Opening = "node-port"        // at a port of each node
)

// announced is the opening of addresses to which hosts announce routes as well.
func (o Opening) announced() Opening { return o + "+bgp" }

// HostReport is what a host tells of ways in that no object of the store has.
type HostReport struct {
	Announced []netip.Prefix // by BGP
	Published []PublishedPort
}

// PublishedPort leads a port of a host to a container there.
type PublishedPort struct {
	Endpoint model.EndpointKey
	Protocol model.Protocol
	At       netip.AddrPort // unspecified = each address of the family; zero address = of both
	Port     uint16         // the container's
}

// ExposureQuestion asks which connections clients outside, and other tenants, may open to To.
type ExposureQuestion struct {
	To      Subject
	Ports   reachability.Ports
	Reports map[model.HostName]HostReport
}

// Exposure answers by what the one who asks may know of. The rows have what is allowed alone.
func (e *Engine) Exposure(ctx context.Context, q ExposureQuestion, scope Scope) (out Reachable, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		to, err := r.resolve(q.To, scope)
		if err != nil {
			return err
		}
		if len(to.endpoints)+len(to.services) == 0 {
			return q.To.selectsNothing()
		}
		x := &exposed{table: newTable(r, q.Ports, scope), direct: map[directKey][]reachability.Outside{}}
		x.read(q.Reports)
		if err := x.fill(to); err != nil {
			return err
		}
		out = Reachable{Revision: r.rev, Rows: x.list(), Some: x.some}
		return nil
	})
	return out, err
}

// exposed collects the rows of such an answer.
type exposed struct {
	*table
	direct    map[directKey][]reachability.Outside // from all addresses
	announced []netip.Prefix
}

type publishedAt struct {
	PublishedPort
	host model.HostName
}

// directKey is equal for endpoints to which the same is allowed from outside.
type directKey struct {
	network    model.NetworkID
	policies   desired.PolicySetID
	v4, v6     bool
	identified bool
}

// read enters what hosts report.
func (x *exposed) read(reports map[model.HostName]HostReport) {
	x.publishedOf = x.rows.publishedPorts(reports)
	for _, r := range reports {
		x.announced = append(x.announced, r.Announced...)
	}
}

func (x *exposed) fill(to side) error {
	asked := map[model.EndpointKey]bool{}
	for _, p := range to.endpoints {
		asked[p.Endpoint] = true
		x.fromOutside(p)
	}
	if err := x.fromTenants(to.endpoints); err != nil {
		return err
	}
	if len(to.services) > 0 {
		for _, s := range to.services {
			x.byService(s, nil)
		}
		return nil
	}
	whole := map[model.ServiceKey]serviceParts{}
	for key := range x.rows.state.Services.All() {
		of := wholeService(key)
		whole[of] = serviceParts{key: of, parts: append(whole[of].parts, key)}
	}
	all := make([]serviceParts, 0, len(whole))
	for _, s := range whole {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b serviceParts) int { return strings.Compare(a.key.String(), b.key.String()) })
	for _, s := range all {
		x.byService(s, asked)
	}
	return nil
}

// fromOutside adds who may connect to an endpoint by its own address, or by a port of its host.
func (x *exposed) fromOutside(p *desired.Port) {
	n := x.rows.cluster.NetworkOf(p)
	if n == nil {
		return
	}
	key := directKey{p.Network, p.Policies, p.IPv4.IsValid(), p.IPv6.IsValid(), p.Identity != model.IdentityUnknown}
	all, known := x.direct[key]
	if !known {
		for _, prefix := range internet {
			all = append(all, x.rows.cluster.FromOutside(prefix, p)...)
		}
		x.direct[key] = all
	}
	for _, o := range all {
		v6 := o.Prefixes[0].Addr().Is6()
		row := Row{IPv4: !v6, IPv6: v6, Answer: o.Answer}
		switch a := p.Addr(v6); {
		case o.Route == reachability.RoutePhysical:
			row.Opening = x.opening(OpeningVLAN, a)
		case o.Route == reachability.RouteHost && n.Routed:
			row.Opening = x.opening(OpeningRouted, a)
		default:
			continue
		}
		x.allow(texts(o.Prefixes), p.Endpoint.String(), row)
	}
	for _, at := range x.publishedOf[p.Endpoint] {
		x.byPort(p, at, all)
	}
}

// byPort adds who may connect to an endpoint by a port of its host. On a VLAN with a router of its
// own, clients have the host's NAT address there.
func (x *exposed) byPort(p *desired.Port, at publishedAt, all []reachability.Outside) {
	for _, prefix := range internet {
		v6 := prefix.Addr().Is6()
		if !p.Addr(v6).IsValid() || !at.at(v6) {
			continue
		}
		row := at.row(v6, reachability.Answer{})
		row.Opening = OpeningPublished
		only := reachability.PortsOf(model.PortMatch{Protocol: at.Protocol, Lo: at.Port, Hi: at.Port})
		if asHost, is := x.rows.cluster.AsHost(p, v6); is {
			row.Answer = asHost.Of(only)
			x.allow([]string{prefix.String()}, p.Endpoint.String(), row)
			continue
		}
		for _, o := range all {
			if o.Prefixes[0].Addr().Is6() == v6 && o.Route == reachability.RouteHost {
				row.Answer = o.Of(only)
				x.allow(texts(o.Prefixes), p.Endpoint.String(), row)
			}
		}
	}
}

// publishedText writes an address and port of a host; 0.0.0.0 stands for all its addresses.
func publishedText(at netip.AddrPort) string {
	if !at.Addr().IsValid() {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()).String()
	}
	return at.String()
}

func (x *exposed) opening(o Opening, a netip.Addr) Opening {
	if slices.ContainsFunc(x.announced, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return o.announced()
	}
	return o
}

// byService adds who may connect to a service's backends, as far as they are asked about (nil = all).
func (x *exposed) byService(s serviceParts, asked map[model.EndpointKey]bool) {
	rec := x.rows.services[s.key]
	for _, key := range s.parts {
		for _, prefix := range internet {
			for _, p := range x.rows.cluster.OutsideToService(prefix, key) {
				if !x.ports.Has(p.Protocol, p.Port) {
					continue
				}
				row := Row{IPv4: prefix.Addr().Is4(), IPv6: prefix.Addr().Is6(), Service: &ServiceAsked{Key: s.key, At: netip.AddrPortFrom(p.Addr, p.Port)}}
				switch {
				case p.Addr.IsUnspecified():
					row.Opening = OpeningNodePort
				case slices.Contains(rec.Balanced, p.Addr):
					row.Opening = x.opening(OpeningBalancer, p.Addr)
				case slices.Contains(rec.External, p.Addr):
					row.Opening = x.opening(OpeningExternal, p.Addr)
				default:
					row.Opening = x.opening(OpeningService, p.Addr)
				}
				for _, b := range p.Backends {
					if asked != nil && !asked[b.Key] {
						continue
					}
					for _, o := range b.Clients {
						row.Answer = o.Answer
						x.allow(texts(o.Prefixes), x.backend(b.Key, b.Addr), row)
					}
				}
			}
		}
	}
}

// fromTenants adds who may connect to endpoints of other tenants by shared networks.
func (x *exposed) fromTenants(to []*desired.Port) error {
	byDomain := map[desired.Domain][]*desired.Port{}
	for _, p := range x.rows.state.Ports.All() {
		if n := x.rows.cluster.NetworkOf(p); n != nil && n.Joined != 0 {
			byDomain[n.Domain()] = append(byDomain[n.Domain()], p)
		}
	}
	pairs := 0
	for _, p := range to {
		n := x.rows.cluster.NetworkOf(p)
		if n == nil {
			continue
		}
		for _, from := range byDomain[n.Domain()] {
			if from.Endpoint.Network.Tenant == p.Endpoint.Network.Tenant {
				continue
			}
			if pairs++; pairs > maxPairs {
				return tooMany(pairs)
			}
			name := from.Endpoint.String()
			if !x.scope.Has(from.Endpoint.Network.Tenant) {
				name = "other tenants"
			}
			for _, v6 := range []bool{false, true} {
				x.allow([]string{name}, p.Endpoint.String(), Row{IPv4: !v6, IPv6: v6, Answer: x.rows.cluster.Between(from, p, v6)})
			}
		}
	}
	return nil
}

// allow adds what is allowed of a row. A service's ports have been looked at.
func (x *exposed) allow(from []string, to string, row Row) {
	if row.Service == nil {
		row.Answer = row.Of(x.ports)
	}
	row.Parts = slices.DeleteFunc(slices.Clone(row.Parts), func(p reachability.Part) bool { return !p.Allowed })
	if len(row.Parts) == 0 {
		return
	}
	for _, f := range from {
		x.put(f, to, row)
	}
}

func texts(all []netip.Prefix) (out []string) {
	for _, p := range all {
		out = append(out, p.String())
	}
	return out
}

// wholeService is the service of the store that one of the desired state is a part of.
func wholeService(k model.ServiceKey) model.ServiceKey {
	k.Name, _, _ = strings.Cut(desired.WholeKey(k).Name, ":")
	return k
}
