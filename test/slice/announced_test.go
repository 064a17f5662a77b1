//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestVLANEndpointsAreAnnounced: a machine on the VLAN reaches a container at once that
// comes up on another host with the address of one that has gone, and all containers of a
// host whose uplink was away, although the switch between them remembers who was where, and
// the containers say nothing themselves.
func TestVLANEndpointsAreAnnounced(t *testing.T) {
	shared(t)
	onOne(t, both, anywhere(vlanAnnounced))
}

func vlanAnnounced(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "announced", 2, in(where))
	c.netctl("network create -e vlan -p 60 -s 10.3.1.0/24 -g 10.3.1.254 machines")
	machine, err := c.AddNamespace("machine")
	if err := errors.Join(err, c.Network.JoinVLAN(machine, 200, 60)); err != nil {
		t.Fatal(err)
	}
	if out, err := machine.Command(t.Context(), "ip", "addr", "add", "10.3.1.200/24", "dev", "eth1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	to := func() netip.Addr { return c.addr("web", "4") }
	reached := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := testcluster.Until(ctx, "web to answer", func(ctx context.Context) error {
			if a := machine.Probe(ctx, testcluster.Target{Proto: "icmp", Addr: to()}, time.Second); a.Verdict != testcluster.OK {
				return errors.New(a.String())
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	at := func(host string) testcluster.ContainerSpec {
		s := spec("web", host, "default/machines")
		s.Args = [][2]string{{"IP", "10.3.1.9"}}
		return s
	}
	c.add(at("h1"))
	reached("at first")
	// The machine asks for no MAC address any more: web's answer would tell the switch where it is.
	if out, err := machine.Command(t.Context(), "ip", "neigh", "replace", to().String(), "lladdr", webMAC(c), "dev", "eth1", "nud", "permanent").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, host := range []string{"h2", "h1"} {
		old, err := c.Container("web")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DelContainer(t.Context(), old.ContainerSpec); err != nil {
			t.Fatal(err)
		}
		c.add(at(host))
		reached(fmt.Sprintf("moved %d times", i+1))
	}

	// Somebody else's frame makes the switch look for web elsewhere while the uplink is away.
	h1 := c.host("h1")
	if err := h1.NS.SetLink("eth1", false); err != nil {
		t.Fatal(err)
	}
	if err := c.Network.MisleadTrunk(60, webMAC(c)); err != nil {
		t.Fatal(err)
	}
	if err := h1.NS.SetLink("eth1", true); err != nil {
		t.Fatal(err)
	}
	reached("after the uplink came back")
}

// TestNeighboursLearnAnotherMAC: a container that comes up with its predecessor's addresses and
// another MAC, on the same or on another host, is reached at once by a neighbour that had
// just spoken to the predecessor.
func TestNeighboursLearnAnotherMAC(t *testing.T) {
	shared(t)
	on(t, 2, both, func(t *testing.T, driver string) {
		c := up(t, driver, "mac", 2)
		c.netctl("network create -e vxlan -s 10.3.1.0/24 -g 10.3.1.254 --subnetv6 fd00:31::/64 --gatewayv6 fd00:31::1 peers")
		c.add(spec("client", "h1", "default/peers"))
		web := spec("web", "h1", "default/peers")
		web.Args = [][2]string{{"IP", "10.3.1.9"}}
		c.add(web)
		client, err := c.Space("client")
		if err != nil {
			t.Fatal(err)
		}
		// learned waits for the client to know web's MAC. It sends nothing meanwhile, so it does
		// not ask.
		learned := func(when string) {
			t.Helper()
			for _, family := range []string{"4", "6"} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				err := testcluster.Until(ctx, "the client to learn web's MAC", func(ctx context.Context) error {
					out, err := client.Command(ctx, "ip", "neigh", "show", "to", c.addr("web", family).String()).CombinedOutput()
					if mac := webMAC(c); err == nil && !strings.Contains(string(out), mac) {
						return fmt.Errorf("%s, want %s", out, mac)
					}
					return err
				})
				cancel()
				if err != nil {
					t.Errorf("%s, IPv%s: %v", when, family, err)
				}
			}
		}
		reached := func(when string) {
			t.Helper()
			for _, family := range []string{"4", "6"} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				err := testcluster.Until(ctx, "web to answer", func(ctx context.Context) error {
					if a := client.Probe(ctx, testcluster.Target{Proto: "icmp", Addr: c.addr("web", family)}, time.Second); a.Verdict != testcluster.OK {
						return errors.New(a.String())
					}
					return nil
				})
				cancel()
				if err != nil {
					t.Errorf("%s, IPv%s: %v", when, family, err)
				}
			}
		}
		reached("at first")
		v6 := c.addr("web", "6")
		for _, next := range []struct{ host, mac string }{{"h1", "02:00:00:00:00:07"}, {"h2", "02:00:00:00:00:08"}, {"h1", ""}} {
			old, err := c.Container("web")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.DelContainer(t.Context(), old.ContainerSpec); err != nil {
				t.Fatal(err)
			}
			web.Host, web.Args = next.host, [][2]string{{"IP", "10.3.1.9," + v6.String()}, {"MAC", next.mac}}
			c.add(web)
			when := fmt.Sprintf("on %s with MAC %q", next.host, next.mac)
			learned(when)
			reached(when)
		}
	})
}

func webMAC(c *cluster) string {
	c.t.Helper()
	a, err := c.Container("web")
	if err != nil {
		c.t.Fatal(err)
	}
	return a.MAC
}
