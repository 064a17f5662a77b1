package hoststack

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestServiceWithTheMostBackendsWorks: as many backends as a service may have are all in the kernel's map, with
// affinity too, and a client is led to one of them.
func TestServiceWithTheMostBackendsWorks(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		f := &Frontend{}
		for i := range desired.MaxBackends {
			a := s.pods[0].AsSlice()
			a[len(a)-2], a[len(a)-1] = byte(i>>8), byte(i)
			addr, _ := netip.AddrFromSlice(a)
			f.Own.Targets = append(f.Own.Targets, Target{AddrPort: netip.AddrPortFrom(addr, 80)})
		}
		f.Outside.Targets = f.Own.Targets
		at := FrontendAddr{s.vip, model.ProtoUDP, 80}
		for _, affinity := range []time.Duration{0, time.Hour} {
			f := *f
			f.Affinity = affinity
			s.frontends.Set(at, &f)
			s.lead()
			to := map[string]bool{}
			for _, e := range s.elements(mapOf(sideOwn, desired.MaxBackends)) {
				to[string(e.Val)] = true
			}
			if len(to) != desired.MaxBackends {
				t.Errorf("affinity %v: %d of %d backends", affinity, len(to), desired.MaxBackends)
			}
			if got := s.chosen(); !to[got] || len(s.clients()) > 0 != (affinity > 0) {
				t.Errorf("affinity %v: a connection is led to %x; remembered: %v", affinity, got, s.clients())
			}
		}
	})
}

// chosen is where a connection of this host to the service is led, as in the maps.
func (s *served) chosen() (to string) {
	s.t.Helper()
	if err := in(s.t, s.host, func() error {
		c, err := new(net.Dialer).DialContext(s.t.Context(), "udp", s.at(80))
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
		return eachTracked(func(t trackedConnection) bool {
			if t.routed && t.to.addr == s.vip {
				to = targetKey(Target{AddrPort: t.from})
			}
			return true
		})
	}); err != nil {
		s.t.Fatal(err)
	}
	return to
}
