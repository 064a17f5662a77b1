package reference

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	benchNetworks = 32   // over which the endpoints are spread
	benchRules    = 1000 // of the policy set that a rule changes in
)

func benchNetwork(id model.NetworkID) *desired.Network {
	return &desired.Network{ID: id, Encap: model.EncapVXLAN, Tag: uint32(id), Subnet: netip.MustParsePrefix("10.0.0.0/8"), VTEPs: []netip.Addr{vtep2}}
}

func benchMAC(kind byte, i int) model.MAC {
	return model.MAC{2, kind, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
}

func benchPort(i int) *desired.Port {
	return &desired.Port{
		IfName: fmt.Sprint("p", i), Network: model.NetworkID(1 + i%benchNetworks), MAC: benchMAC(4, i),
		IPv4: netip.AddrFrom4([4]byte{10, byte(128 + i>>16), byte(i >> 8), byte(i)}), Identity: 300, Policies: desired.PolicySetID(1 + i%4),
	}
}

func benchRemote(i int) *desired.Remote {
	return &desired.Remote{
		Network: model.NetworkID(1 + i%benchNetworks), MAC: benchMAC(3, i),
		IPv4: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Identity: 301, VTEP: vtep2,
	}
}

func benchRule(i int) *desired.Rule {
	return &desired.Rule{
		ID: fmt.Sprint("r", i), Priority: 1 + i%100, Action: model.Allow, Identities: desired.IdentitiesOf(301),
		Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: uint16(i), Hi: uint16(i)}},
	}
}

func benchSet(id desired.PolicySetID, rules desired.Rules) *desired.PolicySet {
	return &desired.PolicySet{ID: id, In: []desired.Tier{{Tier: model.TierContiv, Default: model.Deny, Rules: rules}}}
}

// benchHost is a host with that many local endpoints, and as many on others.
func benchHost(endpoints int) desired.Host {
	h := desired.Host{Name: "h1", VTEP: vtep1}
	for id := range model.NetworkID(benchNetworks) {
		h.Networks = h.Networks.Set(id+1, benchNetwork(id+1))
	}
	var rules desired.Rules
	for i := range benchRules {
		r := benchRule(i)
		rules = rules.Set(r.ID, r)
	}
	for id := range desired.PolicySetID(4) {
		h.PolicySets = h.PolicySets.Set(id+1, benchSet(id+1, rules))
	}
	for i := range endpoints {
		p, r := benchPort(i), benchRemote(i)
		h.Ports = h.Ports.Set(p.IfName, p)
		h.Remotes = h.Remotes.Set(keyOf(r), r)
	}
	return h
}

// benchChanges make one change each to a host with a number of endpoints; what
// has no endpoint itself, such as a new network, concerns none of them.
var benchChanges = []struct {
	name string
	make func(h desired.Host, endpoints int) desired.Host
}{
	{"remote", func(h desired.Host, n int) desired.Host {
		r := benchRemote(n)
		h.Remotes = h.Remotes.Set(keyOf(r), r)
		return h
	}},
	{"port", func(h desired.Host, n int) desired.Host {
		p := benchPort(n)
		h.Ports = h.Ports.Set(p.IfName, p)
		return h
	}},
	{"identity", func(h desired.Host, _ int) desired.Host {
		p := benchPort(0)
		p.Identity++
		h.Ports = h.Ports.Set(p.IfName, p)
		return h
	}},
	{"rule", func(h desired.Host, _ int) desired.Host {
		old, _ := h.PolicySets.Get(1)
		r := benchRule(benchRules)
		h.PolicySets = h.PolicySets.Set(1, benchSet(1, old.In[0].Rules.Set(r.ID, r)))
		return h
	}},
	{"network", func(h desired.Host, _ int) desired.Host {
		h.Networks = h.Networks.Set(benchNetworks+1, benchNetwork(benchNetworks+1))
		return h
	}},
	{"set", func(h desired.Host, _ int) desired.Host {
		h.PolicySets = h.PolicySets.Set(9, benchSet(9, desired.Rules{}))
		return h
	}},
	// A remote that is refused as long as a port has its address.
	{"refused", func(h desired.Host, n int) desired.Host {
		r, p := benchRemote(n), benchPort(0)
		r.Network, r.IPv4 = p.Network, p.IPv4
		h.Remotes = h.Remotes.Set(keyOf(r), r)
		return h
	}},
}

// benchDriver holds a host, a connection for each of its endpoints.
func benchDriver(b *testing.B, h desired.Host, endpoints int) *Driver {
	b.Helper()
	d := New()
	if _, err := d.Apply(b.Context(), h); err != nil {
		b.Fatal(err)
	}
	for i := range endpoints {
		p, r := benchPort(i), benchRemote(i)
		v := d.Send(Packet{
			VTEP: vtep2, Network: r.Network, SrcMAC: r.MAC, DstMAC: p.MAC, Src: r.IPv4, Dst: p.IPv4,
			Proto: model.ProtoTCP, SrcPort: 40000, DstPort: 80, TCPFlags: FlagSYN,
		})
		if !v.Passed() {
			b.Fatal(v)
		}
	}
	return d
}

// BenchmarkApply measures one change and its undoing, by how many endpoints a
// host has, with a connection each.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		h := benchHost(n)
		for _, change := range benchChanges {
			b.Run(fmt.Sprintf("%s/%d", change.name, n), func(b *testing.B) {
				d := benchDriver(b, h, n)
				with := change.make(h, n)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					next := with
					if i%2 == 1 {
						next = h
					}
					if _, err := d.Apply(b.Context(), next); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkThousand measures one change of an endpoint elsewhere on a thousand
// hosts in one process, by how many endpoints each host knows, and the memory that
// a host takes for each endpoint beside the desired state, which the hosts share.
func BenchmarkThousand(b *testing.B) {
	const hosts = 1000
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			h := benchHost(0)
			for i := range n {
				r := benchRemote(i)
				h.Remotes = h.Remotes.Set(keyOf(r), r)
			}
			with := benchChanges[0].make(h, n)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var all []*Driver
			for range hosts {
				d := New()
				if _, err := d.Apply(b.Context(), h); err != nil {
					b.Fatal(err)
				}
				all = append(all, d)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			for i := 0; b.Loop(); i++ {
				next := with
				if i%2 == 1 {
					next = h
				}
				for _, d := range all {
					if r, err := d.Apply(b.Context(), next); err != nil || r.Changes != 1 {
						b.Fatal(r.Changes, err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/hosts, "ns/host")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/hosts/float64(n), "B/endpoint")
		})
	}
}
