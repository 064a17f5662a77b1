package compile

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// cluster tells a compiler of host h1 about one network with a group and a
// policy, 10 local endpoints and n remote ones on 100 hosts, and returns the
// i-th remote one.
func cluster(c *Compiler, n int) func(i int) model.Endpoint {
	network := model.NetworkKey{Tenant: "blue", Name: "n1"}
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	for i := range 101 {
		c.SetHost(model.Host{Name: model.HostName(fmt.Sprint("h", i+1)), VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})})
	}
	c.SetNetwork(model.Network{Key: network, Encap: model.EncapVXLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.0.0.0/8")})
	c.SetIdentity(model.IdentityRecord{ID: 300, Network: network, Group: "g1"})
	c.SetGroup(model.Group{Key: model.GroupKey{Tenant: "blue", Name: "g1"}, Network: "n1", Policies: []model.PolicyName{"p1"}})
	c.SetPolicy(model.ContivPolicy{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}.General())
	for i := range 10 {
		c.SetRule(benchRule(i, 80))
	}
	endpoint := func(i int, host model.HostName) model.Endpoint {
		v4 := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		return model.Endpoint{
			Key: model.EndpointKey{Network: network, ID: model.EndpointID(fmt.Sprint("e", i))}, Group: "g1", Identity: 300,
			Host: host, IPv4: v4, MAC: model.EndpointMAC(network, v4, netip.Addr{}),
		}
	}
	remote := func(i int) model.Endpoint { return endpoint(i+100, model.HostName(fmt.Sprint("h", i%100+2))) }
	for i := range 10 {
		c.SetEndpoint(endpoint(i, "h1"))
	}
	for i := range n {
		c.SetEndpoint(remote(i))
	}
	return remote
}

func benchRule(i int, port uint16) model.PolicyRule {
	return model.Rule{
		Key:       model.RuleKey{Tenant: "blue", Policy: "p1", Rule: model.RuleID(fmt.Sprint("r", i))},
		Direction: model.In, Priority: 1 + i, Action: model.Allow, Protocol: model.ProtoTCP, Port: port, Group: "g1",
	}.General()
}

var sizes = []int{10, 1_000, 10_000, 100_000}

// comeAndGo measures one endpoint that comes and goes, compiled and compared with the
// desired state before.
func comeAndGo(b *testing.B, c *Compiler, extra model.Endpoint) {
	b.Helper()
	pic, _ := c.Compile(1)
	runtime.GC() // the waste of the preparation is not the subject
	b.ResetTimer()
	for i := range b.N {
		if i%2 == 0 {
			c.SetEndpoint(extra)
		} else {
			c.DeleteEndpoint(extra.Key)
		}
		next, _ := c.Compile(int64(i))
		if changes := diff(pic, next); changes != 1 {
			b.Fatalf("%d changes", changes)
		}
		pic = next
	}
}

// BenchmarkEndpointChange measures one remote endpoint coming and going,
// compiled and compared with the desired state before.
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := New("h1")
			extra := cluster(c, n)(n)
			extra.Host = "h2" // which is on the network already
			comeAndGo(b, c, extra)
		})
	}
}

// BenchmarkRuleChange measures one rule changing.
func BenchmarkRuleChange(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := New("h1")
			cluster(c, n)
			pic, _ := c.Compile(1)
			runtime.GC() // the waste of the preparation is not the subject
			b.ResetTimer()
			for i := range b.N {
				c.SetRule(benchRule(3, uint16(100+i%2)))
				next, _ := c.Compile(int64(i))
				if changes := diff(pic, next); changes != 1 {
					b.Fatalf("%d changes", changes)
				}
				pic = next
			}
		})
	}
}

// BenchmarkSnapshot measures a compile from nothing.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for range b.N {
				c := New("h1")
				cluster(c, n)
				c.Compile(1)
			}
		})
	}
}

// diff counts the objects in which two desired states differ.
func diff(old, next desired.Host) (n int) {
	for range next.Networks.Diff(old.Networks) {
		n++
	}
	for range next.Ports.Diff(old.Ports) {
		n++
	}
	for range next.Remotes.Diff(old.Remotes) {
		n++
	}
	for range next.PolicySets.Diff(old.PolicySets) {
		n++
	}
	return n
}

// TestChangeIsLocal checks that one change among many endpoints touches one
// object of the desired state, whatever kind of change it is.
func TestChangeIsLocal(t *testing.T) {
	c := New("h1")
	remote := cluster(c, 2000)
	before, _ := c.Compile(1)
	for _, change := range []struct {
		name string
		do   func()
		want int
	}{
		{"nothing", func() {}, 0},
		{"same endpoint again", func() { c.SetEndpoint(remote(5)) }, 0},
		{"endpoint deleted and made again", func() { c.DeleteEndpoint(remote(5).Key); c.SetEndpoint(remote(5)) }, 0},
		{"remote endpoint", func() { c.SetEndpoint(remote(3000)) }, 1},
		{"remote endpoint gone", func() { c.DeleteEndpoint(remote(3000).Key) }, 1},
		{"rule", func() { c.SetRule(benchRule(1, 99)) }, 1},
		{"identity of a peer", func() {
			c.SetIdentity(model.IdentityRecord{ID: 301, Network: remote(0).Key.Network, Group: "g1", Labels: map[string]string{"a": "b"}})
		}, 1},
		{"endpoint on a host new to the network", func() {
			e := remote(3001)
			e.Host = "h101"
			c.SetHost(model.Host{Name: "h102", VTEP: netip.MustParseAddr("192.168.9.9")})
			e.Host = "h102"
			c.SetEndpoint(e)
		}, 2},
		{"rule of a policy that is not used here", func() {
			r := benchRule(1, 99)
			r.Key.Policy = "p2"
			c.SetRule(r)
		}, 0},
	} {
		change.do()
		after, problems := c.Compile(2)
		if n := diff(before, after); n != change.want {
			t.Errorf("%s: %d objects differ, want %d", change.name, n, change.want)
		}
		if len(problems) > 0 {
			t.Errorf("%s: problems %v", change.name, problems)
		}
		before = after
	}
}
