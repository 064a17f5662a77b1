package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// Tunnel probes (driver.TunnelProber). Known hosts' requests go back as answers; the driver
// gets the beginning of answers.

const (
	// MeterProbes bounds requests and answers of all hosts.
	MeterProbes = 6
	// ProbeRate is how many of these there may be a second.
	ProbeRate = 2000
	probeLen  = 64
)

// probeFlows returns what becomes of probes that come from a host's tunnel endpoint.
// Networks' flows have a higher priority: no other packet is compared with these.
func probeFlows(c Config, vtep netip.Addr) []of.Flow {
	l := &list{cookie: cookie(KindBase, 0)}
	from := match(of.Eq(of.TunID, driver.ProbeVNI), tunnelFrom(vtep), untagged, of.Eq(of.EthType, driver.ProbeEtherType))
	back := []of.Action{of.SetField{Field: of.EthDst, Value: of.MAC(driver.ProbeAnswerMAC)}, tunnelTo(vtep), of.Output{Port: of.PortInPort}}
	if c.Answers {
		back = append([]of.Action{of.Meter{ID: MeterProbes}}, back...)
	}
	l.add(Classify, 90, match(append(from, of.EqMAC(of.EthDst, driver.ProbeRequestMAC))...), back...)
	if !c.Answers {
		return l.flows
	}
	l.add(Classify, 90, match(append(from, of.EqMAC(of.EthDst, driver.ProbeAnswerMAC))...), of.Meter{ID: MeterProbes}, of.Controller{MaxLen: probeLen})
	l.flows[len(l.flows)-1].Cookie |= AnswerBit
	return l.flows
}

// AnswersProbe reports whether a flow has sent a packet up because it answers a probe.
func AnswersProbe(table uint8, cookie uint64) bool {
	kind, _, ours := KindOf(cookie)
	return ours && kind == KindBase && cookie&AnswerBit != 0 && Stage(table) == Classify
}
