package reachability

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestClientsOutsideReachBackendsThatAreNoEndpoints: beside backends on a VXLAN network hosts ask
// them by the relay address, which reaches no tunnel and no address of the network.
func TestClientsOutsideReachBackendsThatAreNoEndpoints(t *testing.T) {
	for addr, want := range map[string]bool{"192.168.7.7": true, "10.1.0.9": false, "127.0.0.1": false} {
		to := netip.MustParseAddr(addr)
		s := &desired.Service{
			Key: model.ServiceKey{Name: "shop"}, Network: 7, IPv4: netip.MustParseAddr("10.96.0.1"), Exposed: true,
			Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}},
		}
		s.Backends = s.Backends.Set(model.EndpointKey{ID: "pod"}, &desired.Backend{Network: 7, IPv4: netip.MustParseAddr("10.1.0.2")})
		s.Backends = s.Backends.Set(model.EndpointKey{ID: "@"}, &desired.Backend{IPv4: to})
		h := desired.Host{HostNAT: desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))}
		h.Networks = h.Networks.Set(7, &desired.Network{ID: 7, Encap: model.EncapVXLAN, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
		h.Services = h.Services.Set(s.Key, s)
		c := NewCluster()
		c.Update(h)
		asked := false
		for _, port := range c.OutsideToService(netip.MustParsePrefix("8.8.8.8/32"), s.Key) {
			for _, b := range port.Backends {
				if b.Addr != to {
					continue
				}
				asked = true
				if got := len(b.Clients) == 1 && len(b.Clients[0].Parts) == 1 && b.Clients[0].Parts[0].Allowed; got != want {
					t.Errorf("%s: allowed %v (%+v), want %v", to, got, b.Clients, want)
				}
			}
		}
		if !asked {
			t.Errorf("%s: no such backend", to)
		}
	}
}
