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

// withForeign adds egress to a world of random services, and returns external backends for
// them; none if the driver cannot reach such.
func (b *bench) withForeign(t testing.TB, h Harness, w *World) []model.Endpoint {
	t.Helper()
	if !h.WayOut || !b.drv.Capabilities().ExternalBackends {
		return nil
	}
	if err := w.Change(func(c *compile.Compiler) { WithWayOut(w.Topology, c, h.WayOut6) }); err != nil {
		t.Fatal(err)
	}
	one, two := clientOutside(false), clientOutside(true)
	return []model.Endpoint{
		{Key: model.EndpointKey{Network: w.Topology.Networks[0].Key, ID: "@1"}, MAC: desired.RouterMAC, IPv4: one, IPv6: two},
		{Key: model.EndpointKey{Network: w.Topology.Networks[0].Key, ID: "@2"}, MAC: desired.RouterMAC, IPv4: one.Next()},
	}
}

// whoIs is an endpoint, or who else provides a service, by its key.
func (x *randomServices) whoIs(k model.EndpointKey) model.Endpoint {
	if i := slices.IndexFunc(x.foreign, func(e model.Endpoint) bool { return e.Key == k }); i >= 0 {
		return x.foreign[i]
	}
	return x.top.Endpoint(k)
}

// fromBeyond makes what somebody who is no endpoint sends: by the host's stack.
func fromBeyond(p reference.Packet) reference.Packet {
	p.Port, p.VTEP, p.Network, p.Uplink, p.VLAN, p.Host, p.DstMAC = "", netip.Addr{}, 0, false, 0, true, desired.RouterMAC
	return p
}
