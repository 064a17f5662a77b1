package ovs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// TestSwitchGetsARouteToTheTunnelsLink: the switch is given a route to the tunnel's link, and the tunnel no address
// of its own, only where the switch finds the same address; and both go again.
func TestSwitchGetsARouteToTheTunnelsLink(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel's datapath has the kernel's routes")
	}
	r := newRig(t)
	ns, err := netns.GetFromName(r.NS)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	cfg := r.config(t)
	cfg.VTEP = vtep1
	if cfg.links, err = netlink.NewHandleAt(ns); err != nil {
		t.Fatal(err)
	}
	defer cfg.links.Close()
	link := netip.PrefixFrom(vtep1, 24).Masked().String()
	pic := desired.Host{Name: "h1"}
	var d *Driver
	start := func() {
		t.Helper()
		if d, err = open(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	start()
	// What somebody changed by the database, and the kernel's routes, reach the driver a moment later.
	check := func(when string, want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s: a route is given, and the tunnel has no address of its own: %v", when, want), func() bool {
			pic.Revision++
			d.mu.Lock()
			d.underlay.routeSeen = time.Time{} // as after routeAgain
			d.mu.Unlock()
			if _, err := d.Apply(t.Context(), pic); err != nil {
				t.Fatal(err)
			}
			given := strings.Contains(r.Appctl("ovs/route/show"), "User: "+link+" dev "+underlayBridge+" SRC "+vtep1.String())
			without := !strings.Contains(r.Vsctl("get", "interface", tunnelName, "options"), localIP)
			return given == want && without == want
		})
	}
	check("at first", true)
	if n := d.DriftRepairs()[driver.DriftPort]; n != 0 {
		t.Errorf("%d things count as put back after somebody else's change", n)
	}
	r.Vsctl("set", "interface", tunnelName, "options:local_ip="+vtep1.String())
	check("with the address that somebody put back", true)
	r.Appctl("ovs/route/del", link)
	r.KillSwitch()
	r.StartSwitch()
	eventually(t, "the switch that restarted to have the route", func() bool {
		const show = "ovs/route/show" // a command that a switch has a moment after it listens
		return strings.Contains(r.Appctl("list-commands"), show) && strings.Contains(r.Appctl(show), "User: "+link)
	})
	for _, c := range []struct{ name, add, del string }{
		{"another address on the bridge", "addr add 10.77.0.1/16 dev " + underlayBridge, "addr del 10.77.0.1/16 dev " + underlayBridge},
		{"a way of its own to a part of the link", "route add 192.168.7.128/25 via " + vtep2.String(), "route del 192.168.7.128/25"},
	} {
		r.Run(append([]string{"ip", "-n", r.NS}, strings.Fields(c.add)...)...)
		check("with "+c.name, false)
		r.Run(append([]string{"ip", "-n", r.NS}, strings.Fields(c.del)...)...)
		check("without "+c.name, true)
	}
	// Open vSwitch finds no way from an address without a subnet.
	prefix := func(remove, add string) {
		r.Run("ip", "-n", r.NS, "addr", "add", vtep1.String()+add, "dev", underlayBridge)
		r.Run("ip", "-n", r.NS, "addr", "del", vtep1.String()+remove, "dev", underlayBridge)
	}
	prefix("/24", "/32")
	eventually(t, "an address without a subnet is told", func() bool {
		pic.Revision++
		d.mu.Lock()
		d.underlay.routeSeen = time.Time{}
		d.mu.Unlock()
		rep, err := d.Apply(t.Context(), pic)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(rep.Problems, func(p driver.Problem) bool {
			return p.Object == "tunnel underlay" && strings.Contains(p.Err.Error(), "has no subnet (/32)")
		})
	})
	prefix("/32", "/24")
	check("with its subnet again", true)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	start() // it finds the route of the one before
	check("of a driver before", true)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := Leftovers(t.Context(), cfg)
	if err != nil || left == nil {
		t.Fatal(left, err)
	}
	if err := left.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if table := r.Appctl("ovs/route/show"); strings.Contains(table, "User:") {
		t.Errorf("a route is left: %s", table)
	}
}
