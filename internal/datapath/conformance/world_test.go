package conformance

import (
	"context"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestPausedMirrorTakesNothingFromUnknownEndpoints checks that a host which has not heard of an endpoint yet takes
// nothing from that endpoint on a VXLAN network, whatever the rules are, and takes
// it for an outsider on a VLAN network.
func TestPausedMirrorTakesNothingFromUnknownEndpoints(t *testing.T) {
	for _, test := range []struct {
		network model.NetworkName
		group   model.GroupName
		to      model.EndpointID
		rule    model.Rule
		want    bool
	}{
		{"vx", "web", "db2", model.Rule{Group: "web", Action: model.Allow}, false},
		{"vx", "web", "db2", model.Rule{Action: model.Allow}, false},
		{"vl", "lan", "lan2", model.Rule{Group: "lan", Action: model.Allow}, false},
		{"vl", "lan", "lan2", model.Rule{Addr: netip.MustParsePrefix("0.0.0.0/0"), Action: model.Allow}, true},
	} {
		top := StandardTopology()
		network := model.NetworkKey{Tenant: "blue", Name: test.network}
		to := top.Endpoint(model.EndpointKey{Network: network, ID: test.to})
		deny := model.Rule{
			Key:       model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "deny"},
			Direction: model.In, Priority: 1, Action: model.Deny, Protocol: model.AnyProtocol,
		}
		allow := test.rule
		allow.Key, allow.Direction, allow.Priority, allow.Protocol = model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "allow"}, model.In, 2, model.AnyProtocol
		w, err := NewWorld(top, Case{
			Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
			Rules:    []model.Rule{deny, allow},
			Attach:   map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: to.Group}: {"p1"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		fresh := top.Endpoint(model.EndpointKey{Network: network, ID: model.EndpointID(string(test.group) + "1")})
		fresh.Key.ID = "fresh"
		b := fresh.IPv4.As4()
		b[3] = 77
		fresh.IPv4, fresh.IPv6 = netip.AddrFrom4(b), netip.Addr{}
		fresh.MAC = model.EndpointMAC(network, fresh.IPv4, fresh.IPv6)
		w.compilers["h1"].SetEndpoint(fresh) // h2 hears nothing
		pic, _ := w.compilers["h1"].Compile(2)
		if _, err := w.Fabric.Host("h1").Apply(context.Background(), pic); err != nil {
			t.Fatal(err)
		}
		p := reference.Packet{
			Port: compile.IfName(fresh.Key), SrcMAC: fresh.MAC, DstMAC: to.MAC, Src: fresh.IPv4, Dst: to.IPv4,
			Proto: model.ProtoUDP, SrcPort: 1, DstPort: 2,
		}
		arrived, hops := w.Fabric.Send("h1", p)
		if got := len(arrived) == 1; got != test.want {
			t.Errorf("%s, %+v: arrived %v, want %v: %v", test.network, test.rule, got, test.want, hops)
		}
	}
}
