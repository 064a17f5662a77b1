package observe

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestConnectionsAreOfTheEndpointsAskedFor: local ends are named by their ports, others by their
// addresses in the connection's network.
func TestConnectionsAreOfTheEndpointsAskedFor(t *testing.T) {
	net := model.NetworkKey{Tenant: "blue", Name: "net"}
	key := func(id model.EndpointID) model.EndpointKey { return model.EndpointKey{Network: net, ID: id} }
	a, b, out := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3"), netip.MustParseAddr("203.0.113.7")
	names := &flowNames{each: func(_ store.Revision, network func(model.Network), endpoint func(model.Endpoint), _ func(model.Policy), _ func(model.Group)) store.Revision {
		network(model.Network{Key: net, ID: 7})
		endpoint(model.Endpoint{Key: key("remote"), IPv4: b})
		return 1
	}}
	ports := map[string]driver.PortStats{"p1": {Endpoint: key("local")}, "p2": {Endpoint: key("other")}}
	all := driver.EstablishedConnections{
		{Network: 7, Src: b, Dst: a, Proto: model.ProtoTCP, DstPort: 80, To: "p1"}:               {N: 3},
		{Network: 7, Src: a, Dst: out, Proto: model.ProtoUDP, DstPort: 53, From: "p1"}:           {N: 2},
		{Network: 7, Src: b, Dst: a, Proto: model.ProtoTCP, DstPort: 80, From: "", To: "p2"}:     {N: 9},
		{Network: 9, Src: b, Dst: a, Proto: model.ProtoICMP, From: "p2", To: "p1", Routed: true}: {N: 1},
	}
	got := namedConnections(all, ports, names, []string{"blue:net:local"}).Groups
	slices.SortFunc(got, func(a, b api.ConnectionGroup) int { return strings.Compare(a.From+a.To, b.From+b.To) })
	want := []api.ConnectionGroup{
		{From: "blue:net:local", Source: "10.1.1.2", Destination: "203.0.113.7", Protocol: 17, Port: 53, Count: 2},
		{From: "blue:net:other", To: "blue:net:local", Source: "10.1.1.3", Destination: "10.1.1.2", Protocol: 1, Count: 1},
		{From: "blue:net:remote", To: "blue:net:local", Source: "10.1.1.3", Destination: "10.1.1.2", Protocol: 6, Port: 80, Count: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
