package transport

import (
	"net/netip"
	"testing"
)

// TestPlacesKeepToTheirShares: one who asks has its share at most, all together what there is, and what is
// given back is there again, once.
func TestPlacesKeepToTheirShares(t *testing.T) {
	p := NewSlots(3, 2)
	a, b := ClientAt(netip.MustParseAddr("10.0.0.1")), ClientAt(netip.MustParseAddr("10.0.0.2"))
	take := func(who netip.Prefix, want bool) func() {
		t.Helper()
		give, ok := p.Acquire(who)
		if ok != want {
			t.Fatalf("a place for %s: %t", who, ok)
		}
		return give
	}
	first := take(a, true)
	take(a, true)
	take(a, false)
	last := take(b, true)
	take(b, false)
	if all, one := p.InUse(a); all != 3 || one != 2 {
		t.Errorf("%d are taken, %d by %s", all, one, a)
	}
	first()
	first()
	if all, one := p.InUse(a); all != 2 || one != 1 {
		t.Errorf("%d are taken, %d by %s", all, one, a)
	}
	take(b, true)
	last()
	take(a, true)
	take(a, false)
}

// TestClientAtIsOneForAllAddressesOfAMachine: what one machine has all of is one.
func TestClientAtIsOneForAllAddressesOfAMachine(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1/32", "::ffff:10.0.0.1": "10.0.0.1/32", "2001:db8::1:2:3:4": "2001:db8::/64",
		"fe80::1%eth0": "fe80::/64", "::1": "::1/128",
	} {
		if got := ClientAt(netip.MustParseAddr(text)).String(); got != want {
			t.Errorf("%s is %s, not %s", text, got, want)
		}
	}
	if ClientAt(netip.Addr{}) != (netip.Prefix{}) {
		t.Error("no address is one")
	}
}

// TestClientAtRemoteIsOneWithItsAddress: with a port likewise, and what is no address is one with all such.
func TestClientAtRemoteIsOneWithItsAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.1:5": "10.0.0.1/32", "[::ffff:10.0.0.1]:6": "10.0.0.1/32", "[fd00:1:2:3:4::5]:1": "fd00:1:2:3::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "[::1]:1": "::1/128", "@": "invalid Prefix", "": "invalid Prefix",
	} {
		if got := ClientAtRemote(remote).String(); got != want {
			t.Errorf("%s is %s, want %s", remote, got, want)
		}
	}
}
