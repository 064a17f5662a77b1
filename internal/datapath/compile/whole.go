package compile

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// wholeHost is the host that has all endpoints of the cluster. No host has its name.
const wholeHost model.HostName = "*"

// NewWhole returns the Compiler of a host that has all endpoints of the cluster, each of which
// is entered after OnWhole: its desired state has everybody's policy, and is for no data plane.
// Hosts are entered as they are.
func NewWhole() *Compiler {
	c := New(wholeHost)
	// Networks of VXLAN need a tunnel endpoint, to which nothing is ever sent.
	c.SetHost(model.Host{Name: wholeHost, VTEP: netip.AddrFrom4([4]byte{127, 0, 0, 1})})
	return c
}

// OnWhole returns an endpoint as the Compiler of NewWhole has to have it. One without a host
// stays so.
func OnWhole(e model.Endpoint) model.Endpoint {
	if e.Host != "" {
		e.Host = wholeHost
	}
	return e
}
