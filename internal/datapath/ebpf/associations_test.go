package ebpf

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestKernelSCTPWorksBetweenHosts: policies, services and the kernel's own SCTP, between the containers
// of two hosts.
func TestKernelSCTPWorksBetweenHosts(t *testing.T) {
	conformance.RequireSCTP(t)
	w := newTwoHosts(t, 1600, 1500)
	server, _ := w.states[1].Ports.Get(containerPort)
	for k, r := range w.states[0].Remotes.All() {
		other := *r
		other.Identity++
		w.states[0].Remotes = w.states[0].Remotes.Set(k, &other)
	}
	other := *server
	other.Identity++
	w.states[1].Ports = w.states[1].Ports.Set(containerPort, &other)
	threads := [2]*thread{newThread(t, w.containers[0]), newThread(t, w.containers[1])}
	s := conformance.Stacks{
		In: func(i int, fn func() error) (err error) {
			threads[i].do(func() { err = fn() })
			return err
		},
		Judge: func(t testing.TB, i int, set *desired.PolicySet) {
			t.Helper()
			pic := w.states[i]
			old, _ := pic.Ports.Get(containerPort)
			p := *old
			pic.PolicySets = desired.Map[desired.PolicySetID, *desired.PolicySet]{}
			if p.Policies = 0; set != nil {
				p.Policies = set.ID
				pic.PolicySets = pic.PolicySets.Set(set.ID, set)
			}
			pic.Ports = pic.Ports.Set(containerPort, &p)
			pic.Revision++
			w.states[i] = pic
			w.apply(t, i)
		},
	}
	for i := range w.states {
		p, _ := w.states[i].Ports.Get(containerPort)
		s.IPv4[i], s.IPv6[i], s.Identities[i] = p.IPv4, p.IPv6, p.Identity
	}
	for i := range w.states {
		s.Judge(t, i, nil)
	}
	conformance.Associations(t, s)
	t.Run("services", func(t *testing.T) {
		// At one address each: one that listens at all tells the client the others too,
		// which that then tries at the service's port, and is refused there, unless it is
		// the backend's.
		s.EchoSCTP(t, 1, netip.AddrPortFrom(s.IPv4[1], 5202))
		s.EchoSCTP(t, 1, netip.AddrPortFrom(s.IPv6[1], 5202))
		s.EchoSCTP(t, 1, netip.AddrPortFrom(netip.Addr{}, 5203))
		vip4, vip6 := w.serve(t, 1, s.IPv4[1], s.IPv6[1])
		for _, checksums := range []string{"on", "off"} { // left to the device, or made by the containers and held to what comes
			for i := range w.containers {
				if out, err := w.in(t, i, "ethtool", "-K", "eth0", "tx", checksums); err != nil {
					t.Fatal(err, out)
				}
			}
			for _, port := range []uint16{5201, 5203} {
				for i, vip := range []netip.Addr{vip4, vip6} {
					to := netip.AddrPortFrom(vip, port)
					t.Run(fmt.Sprintf("%s, offload %s", to, checksums), func(t *testing.T) { s.Bulk(t, [...]netip.Addr{s.IPv4[0], s.IPv6[0]}[i], to) })
				}
			}
		}
	})
}
