package ebpf

import (
	"fmt"
	"net/netip"
)

// nodeLocal, as a machine's number, is this one: NODE_LOCAL of bpf/maps.h.
const nodeLocal = 1<<32 - 1

// routing is the addresses beside those of endpoints: tunnels of other hosts, routed
// networks, and nodes of the cluster. Driver.mu guards it.
type routing struct {
	Tunnels table[tunnelSource, uint32] `map:"tunnels"`
	Reverse table[uint32, tunnelSource] `map:"tunnel_ends"` // addresses by number
	Natives table[subnetKey, segment]   `map:"natives"`
	Nodes   table[addr, uint32]         `map:"nodes"` // by number in Tunnels
	last    uint32                      // last number of a tunnel
}

// begin resets the state of the last Apply.
func (x *routing) begin() { x.Natives.begin() }

// sweep deletes the routed networks that are gone.
func (x *routing) sweep(*applyRun) error { return x.Natives.sweep() }

// putRoutedNetworks writes which addresses are of a routed network: of two with one subnet, of
// that with the smaller number.
func (x *routing) putRoutedNetworks(run *applyRun) error {
	for _, n := range run.routedNetworks() {
		for _, s := range []netip.Prefix{n.Subnet, n.Subnet6} {
			if !s.IsValid() {
				continue
			}
			k := toSubnetKey(0, s)
			if x.Natives.wanted[k] {
				continue
			}
			if err := x.Natives.put(k, segment{uint32(n.ID), uint32(n.Domain())}); fatal(err) {
				return err
			} else if err != nil {
				run.problem(fmt.Sprintf("network %d", n.ID), err)
			}
		}
	}
	return nil
}

// putNodes writes whose the addresses of the cluster's machines are, by the numbers of
// their tunnel endpoints.
func (x *routing) putNodes(run *applyRun) error {
	if !run.scratch && !differs(run.want.Nodes, run.last.Nodes) && !differs(run.want.Tunnels, run.last.Tunnels) && run.want.VTEP == run.last.VTEP {
		return nil
	}
	x.Nodes.begin()
	for a, vtep := range run.want.Nodes.All() {
		number := x.Tunnels.have[toTunnel(vtep)]
		if vtep == run.want.VTEP {
			number = nodeLocal
		}
		if err := x.Nodes.put(toAddr(a), number); fatal(err) {
			return err
		} else if err != nil {
			run.problem("addresses of the cluster's machines", err)
			break
		}
	}
	return x.Nodes.sweep()
}
