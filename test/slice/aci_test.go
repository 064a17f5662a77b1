//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestACI checks infrastructure type aci with a leaf that is a program: endpoints of a
// group speak to each other on one host and across hosts, and with the group's VLAN to
// who is elsewhere in it; two groups of one network speak only while the leaf leads from
// one VLAN to the other, on one host too, whatever the groups' policies say; and the type
// is refused to change while there are networks, and changes when there are none.
func TestACI(t *testing.T) {
	shared(t)
	onOne(t, []string{testcluster.DriverEBPF, testcluster.DriverOVS, testcluster.DriverMixed}, aci)
}

func aci(t *testing.T, driver string) {
	c := up(t, driver, "aci", 2)
	refused := func(line, because string) {
		t.Helper()
		if out, err := c.Masters.Netctl(t.Context(), strings.Fields(line)...); err == nil || !strings.Contains(out+err.Error(), because) {
			t.Errorf("%s: %v, %s; want a refusal that says %q", line, err, out, because)
		}
	}
	vlan := func(group string) (tag uint16) {
		t.Helper()
		out, err := c.Masters.Netctl(t.Context(), "group", "inspect", group)
		m := regexp.MustCompile(`"pktTag": *([0-9]+)`).FindStringSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("group %s: %v: %s", group, err, out)
		}
		if _, err := fmt.Sscan(m[1], &tag); err != nil {
			t.Fatal(err)
		}
		return tag
	}
	make := func(groups string) {
		t.Helper()
		c.netctl("network create -e vlan -s 10.1.0.0/24 -g 10.1.0.254 --subnetv6 fd00:1::/64 net",
			"policy create none", "policy rule-add -d in -j deny none 1")
		for g := range strings.FieldsSeq(groups) {
			c.netctl("group create -p none net " + g)
		}
	}
	c.netctl("global set --fabric-mode aci --vlan-range 101-103")
	make("web db")
	refused("group create net third", "no vlan between 101 and 103 is free")
	refused("global set --fabric-mode default", "network")
	web, db := vlan("web"), vlan("db")
	c.add(spec("w1", "h1", "default/net/web"), spec("w2", "h2", "default/net/web"), spec("d1", "h1", "default/net/db"), spec("d2", "h2", "default/net/db"))

	becomes := func(when string, want testcluster.Verdict, lines ...string) {
		t.Helper()
		for _, line := range lines {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := testcluster.Until(ctx, when+": "+line, func(context.Context) error {
				if a := c.ask(line, time.Second); a.Verdict != want || a.Err != nil {
					return fmt.Errorf("it is %s, want %s", a, want)
				}
				return nil
			})
			if cancel(); err != nil {
				t.Error(err)
			}
		}
	}
	across := func(proto string) (lines []string) {
		for _, pair := range []string{"w1 d1", "d1 w1", "w1 d2", "d2 w1", "w2 d2"} {
			for _, family := range []string{"4", "6"} {
				lines = append(lines, pair+" "+proto+" "+family)
			}
		}
		return lines
	}
	within := []string{"w1 w2 tcp/80", "w2 w1 udp/80 6", "d2 d1 tcp/80 6", "d1 d2 icmp"}
	becomes("no contract", testcluster.OK, within...)
	c.denied("no contract", append(across("tcp/80"), across("icmp")...)...)

	// Who is elsewhere, by the VLAN alone.
	router, err := c.AddNamespace("router")
	if err == nil {
		err = c.Network.JoinVLAN(router, 205, web)
	}
	if err == nil {
		var out []byte
		out, err = router.Command(t.Context(), "ip", "address", "add", "10.1.0.254/24", "dev", "eth1").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	gateway := testcluster.Target{Proto: "icmp", Addr: netip.MustParseAddr("10.1.0.254")}
	elsewhere := func(from *testcluster.Namespace, to testcluster.Target, want testcluster.Verdict) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := testcluster.Until(ctx, fmt.Sprintf("%s to %s", from.Name, to), func(context.Context) error {
			if a := from.Probe(t.Context(), to, time.Second); a.Verdict != want || a.Err != nil {
				return fmt.Errorf("it is %s, want %s", a, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"w1", "w2"} {
		elsewhere(c.space(name), gateway, testcluster.OK)
		elsewhere(router, testcluster.Target{Proto: "tcp", Addr: c.addr(name, "4"), Port: 80}, testcluster.OK)
	}
	for _, name := range []string{"d1", "d2"} {
		elsewhere(c.space(name), gateway, testcluster.Denied)
		elsewhere(router, testcluster.Target{Proto: "tcp", Addr: c.addr(name, "4"), Port: 80}, testcluster.Denied)
	}

	// The contract comes, goes and comes.
	leaf, err := c.AddNamespace("leaf")
	if err == nil {
		err = c.Network.JoinLeaf(leaf, 206, web, db)
	}
	if err != nil {
		t.Fatal(err)
	}
	contract := func(state string) {
		t.Helper()
		if out, err := leaf.Command(t.Context(), "ip", "link", "set", "trunk0", state).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	becomes("a contract", testcluster.OK, append(across("tcp/80"), within...)...)
	contract("down")
	c.denied("none again", across("tcp/80")...)
	becomes("none again", testcluster.OK, within...)
	contract("up")
	becomes("a contract again", testcluster.OK, across("udp/80")...)
	// netplugin is killed, and finds its segments again.
	if err := errors.Join(c.host("h1").KillAgent(), c.host("h1").StartAgent(t.Context())); err != nil {
		t.Fatal(err)
	}
	becomes("restarted", testcluster.OK, across("tcp/80")...)
	contract("down")
	c.denied("restarted", across("tcp/80")...)

	// Another type, when there are no networks: groups are on their network's VLAN, and
	// their policies are the hosts'.
	for _, s := range []testcluster.ContainerSpec{spec("w1", "h1", "default/net/web"), spec("w2", "h2", "default/net/web"), spec("d1", "h1", "default/net/db"), spec("d2", "h2", "default/net/db")} {
		if err := c.DelContainer(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	again := func(mode string) {
		t.Helper()
		c.netctl("group rm web", "group rm db", "policy rm none", "network rm net", "global set --fabric-mode "+mode)
		make("db")
		c.netctl("group create net web")
	}
	again("default")
	c.add(spec("w3", "h1", "default/net/web"), spec("d3", "h1", "default/net/db"))
	becomes("type default", testcluster.OK, "d3 w3 tcp/80")
	c.denied("type default", "w3 d3 tcp/80")
	for _, s := range []testcluster.ContainerSpec{spec("w3", "h1", "default/net/web"), spec("d3", "h1", "default/net/db")} {
		if err := c.DelContainer(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	again("aci")
	c.add(spec("w4", "h1", "default/net/web"), spec("w5", "h1", "default/net/web"), spec("d4", "h1", "default/net/db"))
	becomes("type aci again", testcluster.OK, "w4 w5 tcp/80")
	c.denied("type aci again", "w4 d4 tcp/80", "d4 w4 tcp/80")
}
