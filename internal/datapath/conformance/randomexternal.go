package conformance

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// withExternal adds egress to a world of random services, and returns external backends for
// them; none if the driver cannot reach such.
func (b *bench) withExternal(t testing.TB, h Harness, w *World) []model.Endpoint {
	t.Helper()
	if !h.Egress || !b.drv.Capabilities().ExternalBackends {
		return nil
	}
	if err := w.Change(func(c *compile.Compiler) { WithEgress(w.Topology, c, h.Egress6) }); err != nil {
		t.Fatal(err)
	}
	one, two := clientOutside(false), clientOutside(true)
	return []model.Endpoint{
		{Key: model.EndpointKey{Network: w.Topology.Networks[0].Key, ID: "@1"}, MAC: desired.RouterMAC, IPv4: one, IPv6: two},
		{Key: model.EndpointKey{Network: w.Topology.Networks[0].Key, ID: "@2"}, MAC: desired.RouterMAC, IPv4: one.Next()},
	}
}

// endpointOrBackend is an endpoint, or who else provides a service, by its key.
func (x *randomServices) endpointOrBackend(k model.EndpointKey) model.Endpoint {
	if i := slices.IndexFunc(x.external, func(e model.Endpoint) bool { return e.Key == k }); i >= 0 {
		return x.external[i]
	}
	return x.top.Endpoint(k)
}

// externalAddrs are the addresses of the backends that are no endpoints.
func (x *randomServices) externalAddrs() (out []netip.Addr) {
	for _, e := range x.external {
		out = append(out, e.IPv4, e.IPv6)
	}
	return slices.DeleteFunc(out, func(a netip.Addr) bool { return !a.IsValid() })
}

// fromExternal makes what somebody who is no endpoint sends: by the host's stack.
func fromExternal(p reference.Packet) reference.Packet {
	p.Port, p.VTEP, p.Network, p.Uplink, p.VLAN, p.Host, p.DstMAC = "", netip.Addr{}, 0, false, 0, true, desired.RouterMAC
	return p
}
