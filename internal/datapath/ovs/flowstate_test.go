package ovs

import (
	"fmt"
	"maps"
	"math/rand"
	"net/netip"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// wantedFlows is all that a ledger wants.
func wantedFlows(l *ledger) map[string]string {
	out := map[string]string{}
	for k := range l.owners {
		out[k], _ = l.wanted(k)
	}
	return out
}

// flush takes all edits as done, as a switch would.
func flush(l *ledger) int {
	e := l.edits()
	l.done(e)
	return len(e)
}

func somePort(rng *rand.Rand, i int) *desired.Port {
	v4 := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
	return &desired.Port{
		IfName: fmt.Sprintf("cv%d", i), Network: model.NetworkID(rng.Intn(3) + 1), MAC: model.EndpointMAC(model.NetworkKey{}, v4, netip.Addr{}),
		IPv4: v4, Identity: model.Identity(300 + rng.Intn(4)), Policies: desired.PolicySetID(rng.Intn(3)),
	}
}

// TestFlowsFollowTheDesiredState applies random changes and checks that the flows are
// those of the last desired state alone, in the ledger and in the switch.
func TestFlowsFollowTheDesiredState(t *testing.T) {
	seeds := int64(4)
	if conformance.Full() {
		seeds = 20
	}
	for seed := range seeds {
		rng := rand.New(rand.NewSource(seed))
		p := newFlowState()
		var h desired.Host
		numbers := map[string]uint32{}
		for step := range 60 {
			for range rng.Intn(6) {
				i := rng.Intn(12)
				id := model.NetworkID(rng.Intn(3) + 1)
				switch rng.Intn(8) {
				case 0:
					h.Networks = h.Networks.Delete(id)
				case 1, 2:
					h.Networks = h.Networks.Set(id, &desired.Network{
						ID: id, Encap: []model.Encap{model.EncapVLAN, model.EncapVXLAN}[rng.Intn(2)], Tag: uint32(id) + 10,
						Joined: model.RouterID(rng.Intn(3)), Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(id)}), 16),
						VTEPs: []netip.Addr{netip.AddrFrom4([4]byte{1, 2, 3, byte(rng.Intn(3))})},
					})
				case 3:
					port := somePort(rng, i)
					h.Ports = h.Ports.Set(port.IfName, port)
					if rng.Intn(4) > 0 {
						numbers[port.IfName] = uint32(i + 1 + 20*rng.Intn(2))
					}
				case 4:
					name := fmt.Sprintf("cv%d", i)
					h.Ports = h.Ports.Delete(name)
					delete(numbers, name)
				case 5:
					r := desired.Remote{
						Network: id, MAC: model.MAC{2, 2, 10, 2, 0, byte(i)}, IPv4: netip.AddrFrom4([4]byte{10, 2, 0, byte(i)}),
						Identity: model.Identity(300 + rng.Intn(3)), VTEP: netip.AddrFrom4([4]byte{1, 2, 3, 4}),
					}
					h.Remotes = h.Remotes.Set(desired.RemoteKey{Network: id, MAC: r.MAC}, &r)
				case 6:
					h.Remotes = h.Remotes.Delete(desired.RemoteKey{Network: id, MAC: model.MAC{2, 2, 10, 2, 0, byte(i)}})
				case 7:
					set := desired.PolicySetID(rng.Intn(2) + 1)
					h.PolicySets = h.PolicySets.Set(set, &desired.PolicySet{ID: set, In: []desired.Tier{{
						Default: model.Pass,
						Rules:   desired.RulesOf(desired.Rule{ID: "r", Priority: rng.Intn(3), Action: model.Deny, AnyPeer: true}),
					}}})
				}
			}
			c := pipeline.Config{Tunnel: 100, Uplink: uint32(101 + rng.Intn(20)/19), ArpMode: model.ArpProxy}
			if seed%2 == 1 {
				c.ArpMode = model.ArpFlood
			}
			now := maps.Clone(numbers)
			p.update(h, c, now)
			flush(p.ledger)
			fresh := newFlowState()
			fresh.update(h, c, now)
			want := wantedFlows(fresh.ledger)
			if diff := cmp.Diff(want, p.ledger.installed); diff != "" {
				t.Fatalf("seed %d, step %d: switch (-from scratch +incremental): %d and %d flows", seed, step, len(want), len(p.ledger.installed))
			}
			if len(p.ledger.edits()) != 0 || !maps.Equal(want, wantedFlows(p.ledger)) {
				t.Fatalf("seed %d, step %d: the ledger does not rest", seed, step)
			}
		}
	}
}

// BenchmarkRemoteChange measures one changed remote endpoint among many: the
// cost must not grow with them.
func BenchmarkRemoteChange(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var h desired.Host
			h.Networks = h.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 5})
			remote := func(i int, id model.Identity) (desired.RemoteKey, *desired.Remote) {
				r := &desired.Remote{
					Network: 1, MAC: model.MAC{2, 2, 10, 2, byte(i >> 8), byte(i)}, IPv4: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}),
					Identity: id, VTEP: netip.AddrFrom4([4]byte{1, 2, 3, 4}),
				}
				return desired.RemoteKey{Network: 1, MAC: r.MAC}, r
			}
			for i := range n {
				h.Remotes = h.Remotes.Set(remote(i, 300))
			}
			p := newFlowState()
			c := pipeline.Config{Tunnel: 100, ArpMode: model.ArpProxy}
			p.update(h, c, nil)
			flush(p.ledger)
			id := model.Identity(301)
			for b.Loop() {
				h.Remotes = h.Remotes.Set(remote(n/2, id))
				id++
				p.update(h, c, nil)
				if flush(p.ledger) == 0 {
					b.Fatal("no flow changed")
				}
			}
		})
	}
}
