package hostsync

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// controlPlanePorts is the control plane, which services must not open to external clients: a user
// who writes a slice of backends must not open closed ports. The host's stack refuses
// containers wherever they are forwarded, and this host's processes reach it anyway.
type controlPlanePorts struct {
	control *hoststack.Control  // nil = it is open to containers, so to all
	local   map[netip.Addr]bool // this host's addresses
	tunnel  uint16              // UDP port of the hosts' tunnels; 0 = none
}

// follow notes the control plane and tells whether something is another one.
func (c *controlPlanePorts) follow(now *hoststack.Control) bool {
	if now == c.control {
		return false
	}
	was := *c
	c.control, c.local = now, hoststack.LocalAddresses()
	return now == nil || was.control == nil || !slices.Equal(now.Ports, was.control.Ports) || !slices.Equal(now.Targets, was.control.Targets) ||
		!maps.Equal(c.local, was.local)
}

// has reports whether a port of an address is the control plane's: of a machine of the
// cluster by whichever address of it is known.
//
// The tunnels' port is closed wherever it is, also where containers may reach the control
// plane: led there, a client outside shows this host's address, as which it could send
// packets in the name of any container.
func (c *controlPlanePorts) has(proto model.Protocol, at netip.AddrPort, machines desired.Map[netip.Addr, netip.Addr]) bool {
	if proto == model.ProtoUDP && at.Port() == c.tunnel && c.tunnel != 0 {
		return true
	}
	if c.control == nil || proto != model.ProtoTCP {
		return false
	}
	target := func(at netip.AddrPort) bool {
		_, is := slices.BinarySearchFunc(c.control.Targets, at, netip.AddrPort.Compare)
		return is
	}
	vtep, known := machines.Get(at.Addr())
	return target(at) || known && target(netip.AddrPortFrom(vtep, at.Port())) || c.local[at.Addr()] && slices.Contains(c.control.Ports, at.Port())
}
