package pipeline

import (
	"github.com/contiv/netplugin/v2/internal/driver"
	of "github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
)

// pathChecked in regPort, from Track to Output, stands for the tunnel's port and has room
// in its lowest bit for whether the packet is too big for it.
const pathChecked = 0xfffb0000

// pathMTU checks what containers here send by the tunnel, and has the driver tell the sender
// of what does not fit (RFC 1191, RFC 8201).
func pathMTU(l *list, c Config) {
	if c.PathMTU == 0 || c.Tunnel == 0 {
		return
	}
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(Track, 290, match(origin(fromPort), eth, of.Eq(regPort, c.Tunnel)),
			of.Set(regPort, uint32(pathChecked)), of.CheckLarger{Len: c.PathMTU + ethernetLen, Into: regPort}, goTo(Track))
		l.refuse(c, Track, 291, match(eth, of.Eq(regPort, uint32(pathChecked+1))), driver.DropTooBig)
	}
	l.add(Output, 210, match(of.Eq(regPort, uint32(pathChecked))), of.Set(regPort, c.Tunnel), goTo(Output))
}
