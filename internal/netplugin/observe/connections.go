package observe

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxConnectionGroups bounds the groups of connections that a host reports.
const maxConnectionGroups = 10_000

// Connections returns the established connections of some endpoints of this host, by their keys.
func (a *Observer) Connections(ctx context.Context, endpoints []string) (out api.HostConnections) {
	if a.cfg.Can.Connections == nil {
		out.Error = fmt.Sprintf("the driver %s does not list connections", a.cfg.DriverName)
		return out
	}
	all, err := a.cfg.Can.Connections.Established(ctx)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	stats, err := a.cfg.Driver.Stats(ctx)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	return namedConnections(all, stats.Ports, &flowNames{each: a.cfg.Cluster.Lookup.Each, host: string(a.cfg.Host)}, endpoints)
}

// namedConnections names the ends of connections, and returns those of some endpoints. ports are the
// local ones.
func namedConnections(all driver.EstablishedConnections, ports map[string]driver.PortStats, names *flowNames, endpoints []string) (out api.HostConnections) {
	asked := map[string]bool{}
	for _, key := range endpoints {
		asked[key] = true
	}
	names.refresh()
	key := func(port string, network model.NetworkID, addr netip.Addr) string {
		if p, local := ports[port]; local {
			return p.Endpoint.String()
		}
		return names.key(network, addr)
	}
	for c, n := range all {
		g := api.ConnectionGroup{
			From: key(c.From, c.Network, c.Src), To: key(c.To, c.Network, c.Dst), Source: c.Src.String(), Destination: c.Dst.String(),
			Protocol: uint8(c.Proto), Port: c.DstPort, Count: n.N,
		}
		switch {
		case !asked[g.From] && !asked[g.To]:
		case len(out.Groups) == maxConnectionGroups:
			out.More = true
		default:
			out.Groups = append(out.Groups, g)
		}
	}
	return out
}
