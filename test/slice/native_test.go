//go:build integration

package slice

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestNativeNetworkConnectsHostsAndContainers checks a native network: every host's stack and every container reach each
// other by their own addresses, in both families, from the host's own address; under
// default deny only the container's own host is let in; another tenant with the same
// addresses is not concerned; and restarts of netplugin change nothing.
func TestNativeNetworkConnectsHostsAndContainers(t *testing.T) {
	shared(t)
	onOne(t, []string{testcluster.DriverEBPF, testcluster.DriverOVS, testcluster.DriverMixed}, anywhere(native))
}

func native(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "nat", 2, in(where))
	hosts := []*testcluster.Host{c.host("h1"), c.host("h2")}
	for i, h := range hosts { // addresses that hosts have towards others
		for _, args := range []string{
			"sysctl -q -w net.ipv6.conf.ctl0.disable_ipv6=0", fmt.Sprintf("ip addr add %s/64 dev ctl0 nodad", ownAddr6(i)), "ip -6 route add default dev ctl0",
		} {
			if out, err := h.Run(t.Context(), strings.Fields(args)[0], strings.Fields(args)[1:]...); err != nil {
				t.Fatalf("%s: %v %s", args, err, out)
			}
		}
	}
	c.attachBeyond(hosts[0])
	c.netctl("network create --native -e vxlan -s 10.1.8.0/24 --subnetv6 fd00:8::/64 d",
		"policy create none", "policy rule-add -d in -j deny none 1", "group create -p none d shut",
		"policy create not2", "policy rule-add -d in -j deny -i "+hosts[1].Address.String()+"/32 not2 1", "policy rule-add -d in -j deny -i "+ownAddr6(1).String()+"/128 not2 2",
		"group create -p not2 d wary",
		"policy create home", "policy rule-add -d out -j deny home 1", "group create -p home d home",
		"tenant create blue", "network create -t blue -e vxlan -s 10.1.8.0/24 -g 10.1.8.254 n")
	for _, h := range []string{"1", "2"} {
		on := "h" + h
		c.add(spec("open"+h, on, "default/d"), spec("shut"+h, on, "default/d/shut"), spec("wary"+h, on, "default/d/wary"),
			spec("home"+h, on, "default/d/home"), spec("blue"+h, on, "blue/n"))
	}
	until := func(what string, from *testcluster.Namespace, to testcluster.Target, want testcluster.Verdict, by string) {
		t.Helper()
		wait := 3 * time.Second
		if want == testcluster.Denied {
			wait = 500 * time.Millisecond
		}
		for end := time.Now().Add(30 * time.Second); ; {
			a := from.Probe(t.Context(), to, wait)
			if a.Verdict == want && (by == "" || a.From == by) {
				return
			}
			if time.Now().After(end) {
				t.Errorf("%s to %s: %s by %q, want %s by %q", what, to, a, a.From, want, by)
				return
			}
		}
	}
	all := func(when string) {
		t.Helper()
		for i, h := range hosts {
			for _, family := range []string{"4", "6"} {
				for j := range hosts {
					other, allowed := strconv.Itoa(j+1), map[string]bool{"open": true, "shut": i == j, "wary": i == j || i == 0, "home": true}
					for name, ok := range allowed {
						at := c.addr(name+other, family)
						for _, to := range []testcluster.Target{{Proto: "tcp", Addr: at, Port: 80}, {Proto: "udp", Addr: at, Port: 80}, {Proto: "icmp", Addr: at}} {
							want, by := testcluster.OK, name+other
							if !ok {
								want = testcluster.Denied
							}
							if !ok || to.Proto == "icmp" {
								by = ""
							}
							until(fmt.Sprintf("%s: h%d", when, i+1), h.NS, to, want, by)
						}
					}
					node := h.Address
					if family == "6" {
						node = ownAddr6(i)
					}
					from := "open" + other // its host, or another one
					until(when+": "+from, c.space(from), testcluster.Target{Proto: "icmp", Addr: node}, testcluster.OK, "")
					until(when+": "+from, c.space(from), testcluster.Target{Proto: "tcp", Addr: node, Port: 9}, testcluster.Refused, "")
					until(when+": home"+other, c.space("home"+other), testcluster.Target{Proto: "icmp", Addr: node}, testcluster.Denied, "")
				}
			}
		}
		for _, from := range []string{"blue1", "blue2"} {
			until(when+": "+from, c.space(from), testcluster.Target{Proto: "tcp", Addr: c.addr("blue2", "4"), Port: 80}, testcluster.OK, "blue2")
		}
		// Whom a host forwards for is judged, wherever the container is; so are published
		// ports, at the host's loopback address too.
		for _, x := range []struct {
			name string
			want testcluster.Verdict
		}{{"open1", testcluster.OK}, {"open2", testcluster.OK}, {"shut1", testcluster.Denied}, {"shut2", testcluster.Denied}} {
			until(when+": beyond", c.space(beyond), testcluster.Target{Proto: "tcp", Addr: c.addr(x.name, "4"), Port: 80}, x.want, "")
		}
		for port, want := range map[uint16]testcluster.Verdict{8080: testcluster.OK, 8081: testcluster.Denied} {
			until(when+": beyond", c.space(beyond), testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: port}, want, "")
			until(when+": h1", hosts[0].NS, testcluster.Target{Proto: "tcp", Addr: netip.MustParseAddr("127.0.0.1"), Port: port}, want, "")
			until(when+": h1", hosts[0].NS, testcluster.Target{Proto: "tcp", Addr: hosts[0].Address, Port: port}, want, "")
			until(when+": open1", c.space("open1"), testcluster.Target{Proto: "tcp", Addr: hosts[0].Address, Port: port}, want, "")
			until(when+": open2", c.space("open2"), testcluster.Target{Proto: "tcp", Addr: hosts[0].Address, Port: port}, want, "")
		}
		until(when+": blue1", c.space("blue1"), testcluster.Target{Proto: "tcp", Addr: beyondAddr, Port: 80}, testcluster.OK, beyond)
		until(when+": open1", c.space("open1"), testcluster.Target{Proto: "tcp", Addr: beyondAddr, Port: 80}, testcluster.OK, beyond)
	}
	if out, err := c.space(beyond).Command(t.Context(), "ip", "route", "add", "10.1.8.0/24", "via", linkAddr.String()).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for name, port := range map[string]uint16{"open1": 8080, "shut1": 8081} {
		_, err := hosts[0].Attach().Publish(t.Context(), attach.PublishRequest{Key: c.key(name), Ports: []attach.PortBinding{{Proto: model.ProtoTCP, HostPort: port, ContainerPort: 80}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	all("at first")
	conns := map[string]func() error{}
	for i, h := range hosts {
		for _, name := range []string{"open1", "open2"} {
			conn, err := h.NS.Dial(t.Context(), "tcp", netip.AddrPortFrom(c.addr(name, "4"), 80).String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns[fmt.Sprintf("h%d to %s", i+1, name)] = func() error { return says(conn, name) }
		}
	}
	for _, h := range hosts {
		if err := h.RestartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for what, ask := range conns {
		if err := ask(); err != nil {
			t.Errorf("%s, over a restart of netplugin: %v", what, err)
		}
	}
	all("after a restart")
	for _, h := range hosts {
		s, err := h.AgentState(t.Context())
		if err != nil || len(s.Problems) > 0 {
			t.Errorf("%s: %v, problems %q", h.Name, err, s.Problems)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	// A native network takes no address of a host, and no other tenant.
	for line, why := range map[string]string{
		"network create --native -e vxlan -s " + hosts[0].Address.String()[:strings.LastIndex(hosts[0].Address.String(), ".")] + ".0/24 over": "contains the address",
		"network create -t blue --native -e vxlan -s 10.3.0.0/24 over":                                                                        "is for networks of tenant default alone",
		"network create --native -e vlan -s 10.3.0.0/24 over":                                                                                 "is for networks of encap vxlan alone",
		"network create --native -e vxlan -s 10.1.0.0/16 over":                                                                                "overlap",
	} {
		if out, err := c.Masters.Netctl(t.Context(), strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v %s, want %q", line, err, out, why)
		}
	}
}

// ownAddr6 is the address of IPv6 that a host of TestNativeNetworkConnectsHostsAndContainers has towards others.
func ownAddr6(host int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:77::%d", host+1))
}
