package statemirror

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestPeersAreProbedAtTheirTunnels: others are asked where their tunnels end, else at their control address;
// those whose endpoints are given up count for nothing; more than half is too many.
func TestPeersAreProbedAtTheirTunnels(t *testing.T) {
	c := newCluster(t, nil)
	c.mu.Lock()
	m := c.mirrors.start(Scope{})
	c.mu.Unlock()
	enter := func(k, v any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.input.enter(m, tables.Change{Key: k, Value: v})
	}
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, n}) }
	away := func(name model.HostName, evicted bool) {
		enter(tables.AwayTimeKey{Host: name}, tables.AwayTime{Host: name, Evicted: evicted})
	}
	wants := func(when string, tooMany bool, want ...Peer) {
		t.Helper()
		got, many, _ := c.Hosts.Peers()
		slices.SortFunc(got, func(a, b Peer) int { return strings.Compare(string(a.Name), string(b.Name)) })
		if !slices.Equal(got, want) || many != tooMany {
			t.Errorf("%s: %v, too many away: %v; want %v, %v", when, got, many, want, tooMany)
		}
	}
	_, _, changed := c.Hosts.Peers()
	woken := func(when string) {
		t.Helper()
		select {
		case <-changed:
		default:
			t.Errorf("%s, and nobody is told", when)
		}
		_, _, changed = c.Hosts.Peers()
	}
	for i, h := range []model.Host{
		{Name: "h1", VTEP: at(1)}, {Name: "h2", Control: at(102), VTEP: at(2)}, {Name: "h3", Control: at(103)}, {Name: "h4"},
	} {
		enter(h.Name, h)
		if i == 1 {
			woken("a host is new")
		}
	}
	two, three := Peer{Name: "h2", Addr: at(2)}, Peer{Name: "h3", Addr: at(103)}
	wants("all are alive", false, two, three)
	_, _, changed = c.Hosts.Peers()
	away("h2", false)
	woken("a host is away")
	two.Away = true
	wants("one is away", false, two, three)
	away("h1", false) // netmasters do not hear of this one
	wants("this host too", false, two, three)
	away("h3", false)
	three.Away = true
	wants("three of four", true, two, three)
	away("h4", true)
	away("h3", true)
	wants("two are given up, and two of two are away", true, two)
	enter(tables.AwayTimeKey{Host: "h1"}, nil)
	wants("one of two", false, two)
	enter(tables.AwayTimeKey{Host: "h2"}, nil)
	enter(tables.AwayTimeKey{Host: "h3"}, nil)
	woken("they are back")
	two.Away, three.Away = false, false
	wants("they are back", false, two, three)
}
