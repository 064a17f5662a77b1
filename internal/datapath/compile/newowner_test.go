package compile_test

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNewerEndpointOwnsTheAddress: an address that moved to another host's endpoint, since its former host
// is silent, is the newer endpoint's in the desired state of every host, the former's too:
// in one desired state, in whichever order the transaction's rows come.
func TestNewerEndpointOwnsTheAddress(t *testing.T) {
	top := conformance.StandardTopology()
	top.Hosts = append(top.Hosts, model.Host{Name: "h3", VTEP: conformance.ThirdVTEP})
	network := top.Networks[0]
	former := top.Endpoints[0]
	newer := former
	newer.Key.ID, newer.Host = "newer", "h2"
	vteps := map[model.HostName]netip.Addr{}
	for _, h := range top.Hosts {
		vteps[h.Name] = h.VTEP
	}
	if former.Host != "h1" || former.Key.Network != network.Key || len(vteps) != 3 {
		t.Fatalf("the topology is another: %+v on %v", former, vteps)
	}
	for _, host := range []model.HostName{"h1", "h2", "h3"} {
		for _, newerFirst := range []bool{false, true} {
			c := conformance.NewCompiler(top, host)
			beside := former // so that the network is here
			beside.Key.ID, beside.Host, beside.IPv4, beside.IPv6 = "beside", host, former.IPv4.Next().Next().Next().Next().Next(), netip.Addr{}
			beside.MAC = model.EndpointMAC(network.Key, beside.IPv4, beside.IPv6)
			c.SetEndpoint(beside)
			is := func(when string, owner, other model.Endpoint) {
				t.Helper()
				pic, problems := c.Compile(1)
				far, _ := pic.Remotes.Get(desired.RemoteKey{Network: network.ID, MAC: former.MAC})
				_, ofOwner := pic.Ports.Get(compile.IfName(owner.Key))
				_, ofOther := pic.Ports.Get(compile.IfName(other.Key))
				switch {
				case len(problems) > 0 || ofOther || ofOwner != (owner.Host == host):
					t.Errorf("%s, %s: the owner's port is there: %v, the other's: %v, problems %v", host, when, ofOwner, ofOther, problems)
				case ofOwner != (far == nil) || far != nil && far.VTEP != vteps[owner.Host]:
					t.Errorf("%s, %s: the address is led to %+v, want %s", host, when, far, vteps[owner.Host])
				}
			}
			is("before", former, newer)
			if newerFirst {
				c.SetEndpoint(newer)
				c.DeleteEndpoint(former.Key)
			} else {
				c.DeleteEndpoint(former.Key)
				c.SetEndpoint(newer)
			}
			is("given to the newer", newer, former)
		}
	}
}
