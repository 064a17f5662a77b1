package ovs

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
)

// hasRouted reports whether a desired state has a routed network.
func hasRouted(want desired.Host) bool {
	for _, n := range want.Networks.All() {
		if n.Routed {
			return true
		}
	}
	return false
}

func nodeOwner(a netip.Addr) owner { return owner{kind: pipeline.KindBase, name: "node " + a.String()} }

// setNodes follows the addresses of the cluster's machines; all = compute all their flows.
func (p *flowState) setNodes(want desired.Host, all bool) {
	moved := map[netip.Addr]bool{} // tunnel endpoints that have come or gone
	for ch := range want.Tunnels.Diff(p.have.Tunnels) {
		moved[ch.Key] = ch.Had != ch.Has
	}
	for ch := range want.Nodes.Diff(p.have.Nodes) {
		if !ch.Has {
			p.ledger.set(nodeOwner(ch.Key), nil)
		} else {
			p.setNode(want, ch.Key, ch.New)
		}
	}
	if all = all || want.VTEP != p.have.VTEP; !all && len(moved) == 0 {
		return
	}
	for a, vtep := range want.Nodes.All() {
		if all || moved[vtep] {
			p.setNode(want, a, vtep)
		}
	}
}

func (p *flowState) setNode(want desired.Host, a, vtep netip.Addr) {
	_, known := want.Tunnels.Get(vtep)
	p.ledger.set(nodeOwner(a), pipeline.NodeFlows(p.config, pipeline.Node{Addr: a, VTEP: vtep, Here: vtep == want.VTEP, Known: known}))
}
