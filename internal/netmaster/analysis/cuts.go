package analysis

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Connection is an established connection as the host of one of its ends sees it.
type Connection struct {
	Host     model.HostName
	From, To model.EndpointKey // zero = no endpoint that the host knows
	Src, Dst netip.Addr
	Protocol model.Protocol
	Port     uint16
}

// closing is what tells connections of flows that close.
type closing struct {
	// hosts are of the endpoints at whose hosts connections are counted: the servers, and the
	// clients of servers that are no endpoints.
	hosts map[model.EndpointKey]model.HostName
	at    map[netip.Addr][]model.EndpointKey // the ends of such flows, by address
}

func (r *clusterRows) closingOf(flows []Flow) closing {
	c := closing{map[model.EndpointKey]model.HostName{}, map[netip.Addr][]model.EndpointKey{}}
	seen := map[model.EndpointKey]bool{}
	add := func(keys []model.EndpointKey, counted bool) {
		for _, k := range keys {
			e := r.endpoints[k]
			if e == nil {
				continue
			}
			if counted {
				c.hosts[k] = e.Host
			}
			for _, a := range []netip.Addr{e.IPv4, e.IPv6} {
				if a.IsValid() && !seen[k] {
					c.at[a] = append(c.at[a], k)
				}
			}
			seen[k] = true
		}
	}
	for _, f := range flows {
		if !f.Opens {
			add(f.Difference.To.Endpoints, true)
			add(f.Difference.From.Endpoints, len(f.Difference.To.Prefixes) > 0)
		}
	}
	return c
}

// Counted are the endpoints at whose hosts connections of flows that close are counted, with their
// hosts.
func (e Effects) Counted() map[model.EndpointKey]model.HostName { return e.closing.hosts }

// Cuts reports whether a connection is of a flow that closes, and is counted on its host.
func (e Effects) Cuts(c Connection) bool {
	return slices.ContainsFunc(e.Flows, func(f Flow) bool {
		family := f.IPv6
		if c.Dst.Is4() {
			family = f.IPv4
		}
		if f.Opens || !family || !f.Ports.Has(c.Protocol, c.Port) {
			return false
		}
		from, isFrom := e.closing.end(f.Difference.From, c.From, c.Src)
		to, isTo := e.closing.end(f.Difference.To, c.To, c.Dst)
		at := to
		if at == (model.EndpointKey{}) {
			at = from
		}
		return isFrom && isTo && e.closing.hosts[at] == c.Host
	})
}

// end finds an end of a connection in one side of a flow: an endpoint, or an address outside (zero).
// A host does not know all endpoints of other networks.
func (c closing) end(s reachability.Side, endpoint model.EndpointKey, addr netip.Addr) (model.EndpointKey, bool) {
	candidates := []model.EndpointKey{endpoint}
	if endpoint == (model.EndpointKey{}) {
		candidates = c.at[addr]
	}
	for _, k := range candidates {
		if _, has := slices.BinarySearchFunc(s.Endpoints, k, model.EndpointKey.Compare); has {
			return k, true
		}
	}
	return model.EndpointKey{}, endpoint == (model.EndpointKey{}) && slices.ContainsFunc(s.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
