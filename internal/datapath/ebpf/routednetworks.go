package ebpf

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// nodeHere, as a machine's number, is this one: NODE_HERE of bpf/maps.h.
const nodeHere = 1<<32 - 1

// listRoutedNetworks are the networks that the host's stack knows by their own addresses,
// by their numbers.
func (p *applyRun) listRoutedNetworks() (out []*desired.Network) {
	for _, n := range p.networks {
		if n.Routed {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *desired.Network) int { return int(a.ID) - int(b.ID) })
	return out
}

// putRoutedNetworks writes which addresses are of a native network: of two with one subnet, of
// that with the smaller number.
func (p *applyRun) putRoutedNetworks() error {
	for _, n := range p.listRoutedNetworks() {
		for _, s := range []netip.Prefix{n.Subnet, n.Subnet6} {
			if !s.IsValid() {
				continue
			}
			k := toSubnetKey(0, s)
			if p.routedNetworks.wanted[k] {
				continue
			}
			if err := p.routedNetworks.put(k, segment{uint32(n.ID), uint32(n.Domain())}); fatal(err) {
				return err
			} else if err != nil {
				p.problem(fmt.Sprintf("network %d", n.ID), err)
			}
		}
	}
	return nil
}

// putNodes writes whose the addresses of the cluster's machines are, by the numbers of
// their tunnel endpoints.
func (p *applyRun) putNodes() error {
	if !p.scratch && !differs(p.want.Nodes, p.last.Nodes) && !differs(p.want.Tunnels, p.last.Tunnels) && p.want.VTEP == p.last.VTEP {
		return nil
	}
	p.nodes.begin()
	for a, vtep := range p.want.Nodes.All() {
		number := p.tunnels.have[toTunnel(vtep)]
		if vtep == p.want.VTEP {
			number = nodeHere
		}
		if err := p.nodes.put(toAddr(a), number); fatal(err) {
			return err
		} else if err != nil {
			p.problem("addresses of the cluster's machines", err)
			break
		}
	}
	return p.nodes.sweep()
}
