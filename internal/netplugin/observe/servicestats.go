package observe

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxServiceSeries is how many services have series of their own.
const maxServiceSeries = 100

var (
	serviceConnectionsDesc = prometheus.NewDesc("contiv_netplugin_service_connections",
		"Present connections of this host's clients to a service (tenant:service); services beyond a hundred are other.", []string{"service"}, nil)
	serviceTotalDesc = prometheus.NewDesc("contiv_netplugin_service_connections_total",
		"Connections that this host's clients have opened to a service (tenant:service); services beyond a hundred are other.", []string{"service"}, nil)
	servicePacketsDesc = prometheus.NewDesc("contiv_netplugin_service_packets_total",
		"Packets between this host's clients and a service, by direction as the client sees it; services beyond a hundred are other.", []string{"service", "direction"}, nil)
	serviceBytesDesc = prometheus.NewDesc("contiv_netplugin_service_bytes_total",
		"Bytes between this host's clients and a service, by direction as the client sees it; services beyond a hundred are other.", []string{"service", "direction"}, nil)
	serviceDescs = []*prometheus.Desc{serviceConnectionsDesc, serviceTotalDesc, servicePacketsDesc, serviceBytesDesc}
)

// serviceSums are the reported counts of services.
type serviceSums map[string]*driver.ServiceStats

// add gives series to the first hundred services, the busiest first, which keep them
// as long as something is counted of them; the others share one.
func (m serviceSums) add(now, before map[driver.ServiceOf]driver.ServiceStats) {
	busy := map[string]uint64{}
	for of, s := range now {
		busy[desired.WholeKey(of.Service).String()] += s.Total
	}
	maps.DeleteFunc(m, func(name string, s *driver.ServiceStats) bool {
		s.Connections = 0 // counted below
		_, still := busy[name]
		return !still && name != otherSeries
	})
	var others []string
	for name := range busy {
		if m[name] == nil {
			others = append(others, name)
		}
	}
	slices.SortFunc(others, func(a, b string) int { return cmp.Or(cmp.Compare(busy[b], busy[a]), cmp.Compare(a, b)) })
	room := maxServiceSeries - len(m)
	if m[otherSeries] != nil {
		room++
	}
	for i, name := range others {
		if i >= room {
			name = otherSeries
		}
		if m[name] == nil {
			m[name] = &driver.ServiceStats{}
		}
	}
	for of, n := range now {
		s := m[desired.WholeKey(of.Service).String()]
		if s == nil {
			s = m[otherSeries]
		}
		old := before[of]
		s.Add(driver.ServiceStats{
			Connections: n.Connections, Total: grown(n.Total, old.Total),
			PacketsIn: grown(n.PacketsIn, old.PacketsIn), BytesIn: grown(n.BytesIn, old.BytesIn),
			PacketsOut: grown(n.PacketsOut, old.PacketsOut), BytesOut: grown(n.BytesOut, old.BytesOut),
		})
	}
}

// collect tells the sums; living = what lives is known.
func (m serviceSums) collect(living bool, gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	for name, s := range m {
		if living {
			gauge(serviceConnectionsDesc, float64(s.Connections), name)
		}
		count(serviceTotalDesc, s.Total, name)
		count(servicePacketsDesc, s.PacketsIn, name, "in")
		count(servicePacketsDesc, s.PacketsOut, name, "out")
		count(serviceBytesDesc, s.BytesIn, name, "in")
		count(serviceBytesDesc, s.BytesOut, name, "out")
	}
}

// traffic are 1.x's counters of packets, as the client sees them.
type traffic struct {
	PacketsIn, BytesIn, PacketsOut, BytesOut uint64
}

func (t *traffic) add(s driver.ServiceStats) {
	t.PacketsIn += s.PacketsIn
	t.BytesIn += s.BytesIn
	t.PacketsOut += s.PacketsOut
	t.BytesOut += s.BytesOut
}

// clientStats are the counters of one client in 1.x's shape, with ours beside.
type clientStats struct {
	EndpointIP string                 // empty = clients that are not told apart
	VrfName    string                 // tenant
	PortStats  traffic                // of the client's interface
	SvcStats   map[string]*svcCounted // by address; by address, port and protocol where the service has several
}

type svcCounted struct {
	ServiceIP, ServiceVRF string
	Protocol              string
	SvcPort, ProvPort     string
	SvcStats              traffic
	ProvStats             map[string]*provCounted // by address, or by key when the provider has gone
}

type provCounted struct {
	ProviderIP, ServiceIP, ServiceVrf string
	traffic

	Connections *uint64 `json:",omitempty"` // now; nil = not known
	Total       uint64  // that have begun
}

// clientsOf puts what is counted of services into 1.x's shape, clients in order.
func clientsOf(s driver.Stats, services desired.Map[model.ServiceKey, *desired.Service], addrOf func(k model.EndpointKey, v6 bool) netip.Addr) []*clientStats {
	type client struct {
		key    model.EndpointKey
		tenant model.TenantName
	}
	all := map[client]*clientStats{}
	ports := map[model.EndpointKey]driver.PortStats{}
	for _, p := range s.Ports {
		ports[p.Endpoint] = p
	}
	for of, n := range s.Services {
		svc, ok := services.Get(of.Service)
		if !ok {
			continue // it has just gone
		}
		vip := svc.IPv4
		if of.IPv6 {
			vip = svc.IPv6
		}
		who := client{of.Client, of.Service.Tenant}
		c := all[who]
		if c == nil {
			p := ports[of.Client]
			c = &clientStats{VrfName: string(who.tenant), SvcStats: map[string]*svcCounted{}}
			if of.Client != (model.EndpointKey{}) {
				c.EndpointIP = text(addrOf(of.Client, false), addrOf(of.Client, true), of.Client)
				c.PortStats = traffic{p.RxPackets, p.RxBytes, p.TxPackets, p.TxBytes}
			}
			all[who] = c
		}
		name := vip.String()
		if len(svc.Ports) > 1 {
			name = netip.AddrPortFrom(vip, of.Port).String() + "/" + of.Protocol.String()
		}
		counted := c.SvcStats[name]
		if counted == nil {
			counted = &svcCounted{
				ServiceIP: vip.String(), ServiceVRF: c.VrfName, Protocol: of.Protocol.String(), SvcPort: strconv.Itoa(int(of.Port)),
				ProvStats: map[string]*provCounted{},
			}
			if p, ok := svc.PortOf(of.Protocol, of.Port); ok {
				counted.ProvPort = strconv.Itoa(int(p.Backend))
			}
			c.SvcStats[name] = counted
		}
		counted.SvcStats.add(n)
		var at netip.Addr // also of a provider elsewhere, which addrOf does not know
		if b, ok := svc.Backends.Get(of.Backend); ok {
			at = b.Addr(of.IPv6)
		}
		backend := text(at, addrOf(of.Backend, of.IPv6), of.Backend)
		prov := counted.ProvStats[backend]
		if prov == nil {
			prov = &provCounted{ProviderIP: backend, ServiceIP: counted.ServiceIP, ServiceVrf: c.VrfName}
			counted.ProvStats[backend] = prov
		}
		prov.add(n)
		if s.ConnectionsUnknown == "" {
			if prov.Connections == nil {
				prov.Connections = new(uint64)
			}
			*prov.Connections += n.Connections
		}
		prov.Total += n.Total
	}
	out := slices.Collect(maps.Values(all))
	if out == nil {
		out = []*clientStats{}
	}
	slices.SortFunc(out, func(a, b *clientStats) int {
		return cmp.Or(cmp.Compare(a.VrfName, b.VrfName), cmp.Compare(a.EndpointIP, b.EndpointIP))
	})
	return out
}

// text is the first address that there is, or else the endpoint's key.
func text(a, b netip.Addr, k model.EndpointKey) string {
	switch {
	case a.IsValid():
		return a.String()
	case b.IsValid():
		return b.String()
	}
	return k.String()
}

// serviceClients are the counters of services of this host's clients.
func serviceClients(cfg Config, s driver.Stats) []*clientStats {
	var keys []model.EndpointKey
	for of := range s.Services {
		keys = append(keys, of.Client, of.Backend)
	}
	known := cfg.Cluster.Endpoints.Get(keys)
	o, _ := cfg.Reached.Get()
	return clientsOf(s, o.Services, func(k model.EndpointKey, v6 bool) netip.Addr {
		if v6 {
			return known[k].IPv6
		}
		return known[k].IPv4
	})
}
