package hoststack

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestDeletedServiceRefusesAtItsAddress: at an address of a deleted service, of which a front of port 0 is
// left, this host and clients outside are refused at all ports.
func TestDeletedServiceRefusesAtItsAddress(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		balanced := netip.MustParseAddr("203.0.113.99")
		if s.vip.Is6() {
			balanced = netip.MustParseAddr("fd00:113::99")
		}
		run(t, "ip", "-n", s.beyond, "route", "add", balanced.String(), "via", s.near.String())
		run(t, "ip", "-n", s.host, "route", "add", balanced.String(), "via", s.far.String())
		s.frontends.Set(FrontendAddr{balanced, model.ProtoTCP, 0}, &Frontend{})
		s.lead()
		for _, port := range []uint16{80, 443} {
			for _, network := range []string{"tcp", "udp"} {
				for who, ns := range map[string]string{"this host": s.host, "a client outside": s.beyond} {
					if to := netip.AddrPortFrom(balanced, port).String(); !s.refuses(ns, network, to, true) {
						t.Errorf("%s is not refused at %s %s", who, network, to)
					}
				}
			}
		}
	})
}
