package agent

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestOnlyAChangedMACIsAnnounced: an address that comes back, or moves to another
// host, is announced to neighbours if its MAC is another one, however long it was away.
func TestOnlyAChangedMACIsAnnounced(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")
	first, second := model.MAC{2, 2, 10, 1, 0, 1}, model.MAC{2, 0, 0, 0, 0, 7}
	var want desired.Host
	var table macTable
	wants := func(when string, moved map[binding]model.MAC) {
		t.Helper()
		if got := table.follow(want); !maps.Equal(got, moved) {
			t.Errorf("%s: %v, want %v", when, got, moved)
		}
	}
	port := func(mac model.MAC) {
		want.Ports = want.Ports.Set("p", &desired.Port{Network: 1, MAC: mac, IPv4: v4, IPv6: v6})
	}
	remote := func(mac model.MAC) {
		want.Remotes = want.Remotes.Set(desired.RemoteKey{Network: 1, MAC: mac}, &desired.Remote{Network: 1, MAC: mac, IPv4: v4})
	}
	port(first)
	wants("it comes", nil)
	want.Ports = want.Ports.Delete("p")
	wants("it goes", nil)
	port(first)
	wants("it is back", nil)
	want.Ports = want.Ports.Delete("p")
	wants("it goes again", nil)
	port(second)
	wants("it is back with another MAC", map[binding]model.MAC{{1, v4}: second, {1, v6}: second})
	want.Ports = want.Ports.Delete("p")
	remote(second)
	wants("it moves to another host", nil)
	want.Remotes = want.Remotes.Delete(desired.RemoteKey{Network: 1, MAC: second})
	remote(first)
	wants("it moves and has its first MAC", map[binding]model.MAC{{1, v4}: first})

	// Unused addresses are not remembered forever.
	for i := range 3 * spareBindings {
		want.Ports = desired.Map[string, *desired.Port]{}.Set("q", &desired.Port{Network: 2, MAC: second, IPv4: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})})
		table.follow(want)
	}
	if n := len(table.known); n > spareBindings+16 {
		t.Errorf("%d addresses are remembered", n)
	}
}
