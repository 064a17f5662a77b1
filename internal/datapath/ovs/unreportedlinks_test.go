package ovs

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestUnreportedLinksChangeNothing: a database server that has just started knows no links, and says so of
// all: neither the uplink nor the reported state of the underlay changes by that.
func TestUnreportedLinksChangeNothing(t *testing.T) {
	up, down := "up", "down"
	index, number := 7, map[string]int{"eth1": 1, "eth2": 2}
	db := &database{bridges: map[string]*bridgeRow{}, ports: map[string]*portRow{}, ifaces: map[string]*interfaceRow{}, named: map[string]*portRow{}, holder: map[string]string{}}
	d := newDriver(Config{Bridge: "br", Uplinks: []string{"eth1", "eth2"}})
	d.conns.db, d.underlay.under = db, "br"
	links := func(state map[string]*string) {
		db.set(&bridgeRow{UUID: "br", Name: "br", Ports: []string{"eth1", "eth2"}})
		for name, s := range state {
			n := number[name]
			i := &interfaceRow{UUID: name, Name: name, OfPort: &n, LinkState: s}
			if s != nil {
				i.AdminState, i.IfIndex = &up, &index
			}
			db.set(&portRow{UUID: name, Name: name, Interfaces: []string{name}, ExternalIDs: map[string]string{markKey: markUplink}})
			db.set(i)
		}
	}
	for _, x := range []struct {
		name   string
		links  map[string]*string
		uplink uint32
		cut    bool
	}{
		{"nothing is known", map[string]*string{"eth1": nil, "eth2": nil}, 1, false},
		{"the first one has no link", map[string]*string{"eth1": &down, "eth2": &up}, 2, false},
		{"another database server", map[string]*string{"eth1": nil, "eth2": nil}, 2, false},
		{"none has a link", map[string]*string{"eth1": &down, "eth2": &down}, 1, true},
		{"another database server after that", map[string]*string{"eth1": nil, "eth2": nil}, 1, true},
		{"both have links", map[string]*string{"eth1": &up, "eth2": &up}, 1, false},
		{"the first one has none again, and of the other nothing is told", map[string]*string{"eth1": &down, "eth2": nil}, 1, false},
	} {
		links(x.links)
		d.flows.pic.config, d.underlay.disconnected = d.ports.config(desired.Host{}), d.underlay.isDisconnected()
		if d.flows.pic.config.Uplink != x.uplink || d.underlay.disconnected != x.cut {
			t.Errorf("%s: uplink %d, cut off: %v, want %d and %v", x.name, d.flows.pic.config.Uplink, d.underlay.disconnected, x.uplink, x.cut)
		}
	}
}
