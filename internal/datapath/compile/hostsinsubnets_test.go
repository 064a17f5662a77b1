package compile

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNetworkTellsOfHostsInside: when a host is enrolled inside a subnet of a tenant
// administrator's network, the network's problem names the host that its containers do not
// reach, until the host has another address.
func TestNetworkTellsOfHostsInside(t *testing.T) {
	c := New("h1")
	c.SetGlobal(model.DefaultGlobal())
	c.SetHost(model.Host{Name: "h1", VTEP: netip.MustParseAddr("192.168.0.1")})
	n := model.Network{Key: model.NetworkKey{Tenant: "blue", Name: "n1"}, Encap: model.EncapVXLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.60.0.0/24"), ByTenant: true}
	c.SetNetwork(n)
	c.SetEndpoint(model.Endpoint{Key: model.EndpointKey{Network: n.Key, ID: "e1"}, Host: "h1", Identity: model.IdentityFirst, IPv4: netip.MustParseAddr("10.60.0.9"), MAC: model.MAC{2, 2, 10, 60, 0, 9}})
	told := func(when string, want bool) {
		t.Helper()
		_, problems := c.Compile(1)
		got := false
		for _, p := range problems {
			got = got || p.Object == "network blue:n1" && strings.HasPrefix(p.Text, model.NoEffectPrefix) && strings.Contains(p.Text, "10.60.0.5 of host h2")
		}
		if got != want {
			t.Errorf("%s: told %v, want %v: %v", when, got, want, problems)
		}
	}
	told("at first", false)
	c.SetHost(model.Host{Name: "h2", Control: netip.MustParseAddr("10.60.0.5"), VTEP: netip.MustParseAddr("10.60.0.5")})
	told("a host joins", true)
	c.SetHost(model.Host{Name: "h2", Control: netip.MustParseAddr("192.168.0.2"), VTEP: netip.MustParseAddr("192.168.0.2")})
	told("it has another address", false)
	c.SetHost(model.Host{Name: "h2", VTEP: netip.MustParseAddr("10.60.0.5")})
	told("it is back", true)
	c.DeleteHost("h2")
	told("it is gone", false)
}
