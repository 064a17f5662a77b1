package pipeline

import (
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// reopenFlows sends up requests (SYN), and answers to them, that do not fit the connection
// that tracking knows by their addresses and ports: the ends may have closed it in a way
// that tracking has not seen (RFC 9293 section 3.6.1), such as by a reset out of order.
func (l baseFlows) reopenFlows() {
	if !l.c.Answers {
		return
	}
	for _, eth := range []of.Term{isIP, isIPv6} {
		invalid := func(mask int) of.Match {
			return match(eth, isProto(6), of.State(of.StateInv|of.StateTrk, 0), of.Masked(of.TCPFlags, of.Uint(2), of.Uint(mask)))
		}
		l.refuseBy(l.c, MeterReopen, ConntrackState, 101, invalid(0x07), driver.DropInvalid)
		l.refuseBy(l.c, MeterReopen, ServiceState, 201, invalid(0x17), driver.DropInvalid)
	}
}

// Reopens reports whether a flow has sent a packet up because its connection may be closed.
func Reopens(table uint8, cookie uint64) bool {
	kind, why, ours := KindOf(cookie)
	return ours && kind == KindDrop && cookie&AnswerBit != 0 && Reason(why) == driver.DropInvalid && (Stage(table) == ConntrackState || Stage(table) == ServiceState)
}

// RegOrigin tells the driver where a packet came from.
const RegOrigin = regOrigin

// IsSourceChecked reports whether a value of RegOrigin is of a packet whose source this host or
// another one has checked: a container's.
func IsSourceChecked(origin uint32) bool { return origin == fromPort || origin == fromTunnel }

// FromPort reports whether a value of RegOrigin is of a packet of a container here.
func FromPort(origin uint32) bool { return origin == fromPort }

// IsServiceTable reports whether a packet that was sent up from a table is on its way to a service
// and is tracked as its client sent it.
func IsServiceTable(table uint8) bool { return Stage(table) == ServiceState }
