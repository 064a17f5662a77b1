package compile

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// nodePorts has the addresses of an orchestrator's nodes, at which node ports answer.
//
// Takes: node rows.
// Gives: NodeAddrs; addresses, nodes and this host's zone to cluster services, and whether
// they have changed.
type nodePorts struct {
	self   model.HostName
	nodes  map[model.NodeName]model.ClusterNode
	nodeOf map[netip.Addr]model.NodeName // whose a node's address is
	zone   string                        // of this host's node

	dirty       bool
	changed     bool // in this Compile
	zoneChanged bool // likewise

	out *output
}

func (np *nodePorts) put(v model.ClusterNode) {
	if old, had := np.nodes[v.Name]; !had || !old.Equal(v) {
		np.nodes[v.Name], np.dirty = v, true
	}
}

func (np *nodePorts) remove(k model.NodeName) {
	if _, had := np.nodes[k]; had {
		delete(np.nodes, k)
		np.dirty = true
	}
}

// compile writes at which addresses node ports are.
func (np *nodePorts) compile() {
	np.changed, np.zoneChanged = np.dirty, false
	if !np.dirty {
		return
	}
	np.dirty = false
	now := map[netip.Addr]model.NodeName{}
	for _, n := range np.nodes {
		for _, a := range n.Addrs {
			if first, had := now[a]; !had || n.Name == model.NodeName(np.self) || first != model.NodeName(np.self) && n.Name < first {
				now[a] = n.Name
			}
		}
	}
	np.nodeOf = now
	for a := range now {
		if _, had := np.out.NodeAddrs.Get(a); !had {
			np.out.NodeAddrs = np.out.NodeAddrs.Set(a, struct{}{})
		}
	}
	for a := range np.out.NodeAddrs.All() {
		if _, has := now[a]; !has {
			np.out.NodeAddrs = np.out.NodeAddrs.Delete(a)
		}
	}
	if zone := np.nodes[model.NodeName(np.self)].Zone; zone != np.zone {
		np.zone, np.zoneChanged = zone, true
	}
}
