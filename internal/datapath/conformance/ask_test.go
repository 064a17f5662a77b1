package conformance

import (
	"context"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestAskFollowsServicesAndEgress: a container connects to a service whose backend is on the other host, to a
// service without providers and to the outside; a host connects to its container. Answers
// come back.
func TestAskFollowsServicesAndEgress(t *testing.T) {
	top := StandardTopology()
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	key := model.NetworkKey{Tenant: "blue", Name: "vx"}
	s := &services{top: top, w: w, key: key}
	nobody := s.secondService()
	comp := NewCompiler(top, "h1")
	WithEgress(top, comp, true)
	pic, _ := comp.Compile(2)
	for _, x := range []desired.Service{s.shop("db2"), nobody} {
		pic.Services = pic.Services.Set(x.Key, &x)
	}
	if _, err := w.Fabric.Host("h1").Apply(context.Background(), pic); err != nil {
		t.Fatal(err)
	}
	web1, db2 := s.at("web1"), s.at("db2")
	port := portOf(pic, web1)
	at := func(e model.Endpoint) reference.Arrival {
		return reference.Arrival{Host: e.Host, Port: compile.IfName(e.Key)}
	}
	for _, x := range []struct {
		name    string
		ask     reference.Request
		by      reference.Arrival
		refused bool
	}{
		{"a service of the other host", reference.Request{Host: "h1", Port: port.IfName, Dst: vipOf(top.Network(key), false), DstPort: 80}, at(db2), false},
		{"a service of the other host by IPv6", reference.Request{Host: "h1", Port: port.IfName, Dst: vipOf(top.Network(key), true), DstPort: 80}, at(db2), false},
		{"a service without providers", reference.Request{Host: "h1", Port: port.IfName, Dst: nobody.IPv4, DstPort: 80}, reference.Arrival{}, true},
		{"nobody", reference.Request{Host: "h1", Port: port.IfName, Dst: host4(top.Network(key), 250), DstPort: 80}, reference.Arrival{}, false},
		{"outside", reference.Request{Host: "h1", Port: port.IfName, Dst: Outside, DstPort: 80}, reference.Arrival{Host: "h1"}, false},
		{"outside by IPv6", reference.Request{Host: "h1", Port: port.IfName, Dst: Outside6, DstPort: 80}, reference.Arrival{Host: "h1"}, false},
		{"the host a container", reference.Request{Host: "h1", Src: pic.HostNAT.Addr, Dst: port.Private, DstPort: 80}, at(web1), false},
		{"the host a container by IPv6", reference.Request{Host: "h1", Src: pic.HostNAT.Addr6, Dst: port.Private6, DstPort: 80}, at(web1), false},
		{"the host a container of the other one", reference.Request{Host: "h1", Src: pic.HostNAT.Addr, Dst: netip.MustParseAddr("172.19.9.9"), DstPort: 80}, reference.Arrival{}, false},
	} {
		x.ask.Proto, x.ask.SrcPort = model.ProtoTCP, 30000
		out := w.Fabric.Ask(x.ask)
		if out.By != x.by || out.Answered != (x.by != reference.Arrival{}) || out.Refused != x.refused {
			t.Errorf("%s: answered %t by %+v, refused %t: %v", x.name, out.Answered, out.By, out.Refused, out.Hops)
		}
	}
}
