package pipeline

import (
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// Marked adds to the flows of a local port, which Port has returned, the flows that mark
// all its IP packets with a DSCP (RFC 2474 section 3), before anything else happens to
// them; 0 = it is left as it is. Packets to another host leave by the VXLAN port that
// copies the mark outside. Copies of broadcast frames and answers to external clients leave
// by the other one.
func Marked(c Config, flows []of.Flow, p LocalPort, dscp uint8) []of.Flow {
	if dscp == 0 {
		return flows
	}
	l := &list{flows: flows, cookie: cookie(KindPort, p.Number)}
	in := of.Eq(of.InPort, p.Number)
	all := match(in, untagged)
	for _, f := range flows {
		if f.Table != uint8(Classify) || f.Match.String() != all.String() {
			continue
		}
		for _, eth := range []of.Term{isIP, isIPv6} {
			l.add(Classify, f.Priority+10, match(in, untagged, eth), append([]of.Action{of.Set(of.IPDSCP, dscp)}, f.Actions...)...)
		}
	}
	if c.Tunnel != 0 && c.Marked != 0 {
		for _, eth := range []of.Term{isIP, isIPv6} {
			l.add(Output, 20, match(in, eth, of.Eq(regPort, c.Tunnel)), of.Output{Port: c.Marked})
		}
	}
	return l.flows
}
