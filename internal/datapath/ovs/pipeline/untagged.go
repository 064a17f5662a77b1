package pipeline

import of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"

// untaggedBase joins the host's stack to the untagged segment of the uplink, on which the
// physical network's routers are. No network's frames are untagged there, so that only
// these two use it, and none of its frames reaches a container.
func (l baseFlows) untaggedBase() {
	if l.c.Router == 0 || l.c.Uplink == 0 {
		return
	}
	l.add(Classify, 100, match(of.Eq(of.InPort, l.c.Uplink), untagged), of.Output{Port: l.c.Router})
	l.add(Classify, 100, match(of.Eq(of.InPort, l.c.Router), untagged), of.Output{Port: l.c.Uplink})
}
