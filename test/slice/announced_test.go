//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// TestVLANEndpointsAreAnnounced: a machine on the VLAN reaches a container at once that
// comes up on another host with the address of one that has gone, and all containers of a
// host whose uplink was away, although the switch between them remembers who was where, and
// the containers say nothing themselves.
func TestVLANEndpointsAreAnnounced(t *testing.T) {
	shared(t)
	onOne(t, both, anywhere(vlanAnnounced))
}

func vlanAnnounced(t *testing.T, driver string, where lab.Environment) {
	c := up(t, driver, "announced", 2, in(where))
	c.netctl("network create -e vlan -p 60 -s 10.3.1.0/24 -g 10.3.1.254 machines")
	machine, err := c.AddNamespace("machine")
	if err := errors.Join(err, c.JoinVLAN(machine, 200, 60)); err != nil {
		t.Fatal(err)
	}
	if out, err := machine.Command(t.Context(), "ip", "addr", "add", "10.3.1.200/24", "dev", "eth1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	to := func() netip.Addr { return c.addr("web", "4") }
	reached := func(when string, patience time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := lab.Until(ctx, "web to answer", func(ctx context.Context) error {
			if a := machine.Probe(ctx, lab.Target{Proto: "icmp", Addr: to()}, 200*time.Millisecond); a.Verdict != lab.OK {
				return errors.New(a.String())
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	at := func(host string) lab.ContainerSpec {
		s := spec("web", host, "default/machines")
		s.Args = [][2]string{{"IP", "10.3.1.9"}}
		return s
	}
	c.add(at("h1"))
	reached("at first", 10*time.Second)
	for i, host := range []string{"h2", "h1"} {
		old, err := c.Container("web")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DelContainer(t.Context(), old.ContainerSpec); err != nil {
			t.Fatal(err)
		}
		c.add(at(host))
		reached(fmt.Sprintf("moved %d times", i+1), 2*time.Second)
	}

	// Somebody else's frame makes the switch look for web elsewhere while the uplink is away.
	h1 := c.host("h1")
	if err := h1.NS.SetLink("eth1", false); err != nil {
		t.Fatal(err)
	}
	if err := c.MisleadTrunk(60, web(c)); err != nil {
		t.Fatal(err)
	}
	if err := h1.NS.SetLink("eth1", true); err != nil {
		t.Fatal(err)
	}
	reached("after the uplink came back", 10*time.Second)
}

func web(c *cluster) string {
	c.t.Helper()
	a, err := c.Container("web")
	if err != nil {
		c.t.Fatal(err)
	}
	return a.MAC
}
