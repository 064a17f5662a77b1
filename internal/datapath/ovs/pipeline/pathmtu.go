package pipeline

import (
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// These in regPort, from Conntrack to Output, stand for the port of the tunnel and of the uplink.
// They have room in the lowest bit for whether the packet is too big for it.
const (
	tunnelChecked = 0xfffb0000
	uplinkChecked = 0xfffa0000
)

// pathMTU checks what containers here send by the tunnel or the uplink, and has the driver
// tell the sender of what does not fit (RFC 1191, RFC 8201).
func (l baseFlows) pathMTU() {
	for _, way := range []struct {
		port    uint32
		mtu     uint16
		checked uint32
	}{{l.c.Tunnel, l.c.PathMTU, tunnelChecked}, {l.c.Uplink, l.c.UplinkMTU, uplinkChecked}} {
		if way.port == 0 || way.mtu == 0 {
			continue
		}
		for _, eth := range []of.Term{isIP, isIPv6} {
			l.add(Conntrack, 290, match(origin(fromPort), eth, of.Eq(regPort, way.port)),
				of.Set(regPort, way.checked), of.CheckLarger{Len: way.mtu + ethernetLen, Into: regPort}, goTo(Conntrack))
			l.refuse(l.c, Conntrack, 291, match(eth, of.Eq(regPort, way.checked+1)), driver.DropTooBig)
		}
		l.add(Output, 210, match(of.Eq(regPort, way.checked)), of.Set(regPort, way.port), goTo(Output))
	}
}

// TooBigForUplink reports whether a packet that a flow has sent up is too big for the
// uplink, and not for the tunnel.
func TooBigForUplink(port uint32) bool { return port == uplinkChecked+1 }
