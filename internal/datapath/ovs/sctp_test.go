package ovs

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestKernelSCTPWorksOnAHost: policies and the kernel's own SCTP, between two containers of a host.
func TestKernelSCTPWorksOnAHost(t *testing.T) {
	conformance.RequireSCTP(t)
	l := newLive(t, 2)
	t.Cleanup(func() { _ = l.drv.Close() })
	s := conformance.Stacks{
		PacketByPacket: true,
		In:             func(i int, fn func() error) error { return inNamespace(l.boxes[i].ns, fn) },
		Judge: func(t testing.TB, i int, set *desired.PolicySet) {
			t.Helper()
			p := *l.boxes[i].port
			l.pic.PolicySets = l.pic.PolicySets.Delete(desired.PolicySetID(i + 1))
			if set != nil {
				p.Policies = set.ID
				l.pic.PolicySets = l.pic.PolicySets.Set(set.ID, set)
			}
			l.pic.Ports = l.pic.Ports.Set(p.IfName, &p)
			l.apply(t)
		},
	}
	for i, b := range l.boxes {
		s.IPv4[i], s.IPv6[i], s.Identities[i] = b.port.IPv4, b.port.IPv6, b.port.Identity
	}
	conformance.Associations(t, s)
}
