package controller

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestKnownRangesCauseNoWork: ranges that are known already, as one who asks again and again finds
// them, have no service looked at again.
func TestKnownRangesCauseNoWork(t *testing.T) {
	s := NewServices(ServicesConfig{})
	for i, c := range []struct {
		ranges string
		looks  bool
	}{{"10.96.0.0/12", true}, {"10.96.0.0/12", false}, {"10.112.0.0/12", true}} {
		s.AddRanges([]netip.Prefix{netip.MustParsePrefix(c.ranges)})
		if _, all, _ := s.work.take(); all != c.looks || len(s.ranges(nil)) != 1 || s.ranges(nil)[0].String() != c.ranges {
			t.Errorf("%d: looks at all: %v, want %v; %v", i, all, c.looks, s.ranges(nil))
		}
	}
}

// TestUnconfirmedRangesStay: a range that only kubeadm tells of stays while it is not known whether
// it does, as when its ConfigMap cannot be read at the start of the next netmaster.
func TestUnconfirmedRangesStay(t *testing.T) {
	st := memory.New()
	before := newServicesLabOn(t, st, func(c *ServicesConfig) { c.MoreRanges = true })
	before.services.AddRanges([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")})
	before.start(before.ctrl.Run)
	before.start(before.services.Run)
	fence := before.leader()
	stop := before.lead(fence)
	before.want("ranges [10.96.0.0/12]")
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l := newServicesLabOn(t, st, func(c *ServicesConfig) { c.MoreRanges = true })
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.sources[mirror.ServiceCIDRs].Add(serviceCIDR("more", "10.112.0.0/16"))
	l.lead(fence)
	l.want("ranges [10.96.0.0/12 10.112.0.0/16]")
	l.services.AddRanges([]netip.Prefix{netip.MustParsePrefix("10.80.0.0/16")})
	l.want("ranges [10.80.0.0/16 10.112.0.0/16]")
	l.services.AddRanges(nil)
	l.want("ranges [10.112.0.0/16]")
}
