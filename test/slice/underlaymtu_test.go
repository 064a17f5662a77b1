//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestUnderlayMTUShrinks: when the MTU between hosts shrinks under running containers, a
// connection between them goes on, also one by a service, and the hosts say what has happened
// until it is big again.
func TestUnderlayMTUShrinks(t *testing.T) {
	shared(t)
	onOne(t, both, underlayShrinks)
}

func underlayShrinks(t *testing.T, driver string) {
	c := up(t, driver, "shrink", 2)
	c.netctl("network create -e vxlan -s 10.1.1.0/24 -g 10.1.1.254 --subnetv6 fd00:1::/64 vx")
	c.add(spec("a", "h1", "default/vx"), spec("b", "h2", "default/vx"))
	conn, peer, err := c.connect(t.Context(), "a", "b", "4")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer peer.Close()
	moves := func(when string) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		_, _ = conn.SetDeadline(deadline), peer.SetDeadline(deadline)
		const size = 256 << 10
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(make([]byte, size))
			sent <- err
		}()
		buf, n := make([]byte, 64<<10), 0
		for n < size {
			k, err := peer.Read(buf)
			if n += k; err != nil {
				t.Fatalf("%s: after %d bytes: %v", when, n, err)
			}
		}
		if err := <-sent; err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	told := func(want bool) {
		t.Helper()
		for _, h := range c.Hosts() {
			c.until(fmt.Sprintf("%s to tell of a smaller MTU: %v", h.Name, want), func(ctx context.Context) error {
				out, err := c.Masters.Netctl(ctx, "host", "inspect", h.Name)
				if err == nil && strings.Contains(out, "tunnels carry 1350 bytes") != want {
					err = errors.New(out)
				}
				return err
			})
		}
	}
	moves("at first")
	if err := c.Network.SetUnderlayMTU(1400); err != nil {
		t.Fatal(err)
	}
	moves("with a smaller MTU")
	for _, family := range []string{"4", "6"} {
		if took, err := c.send("a", "b", family, 256<<10); err != nil {
			t.Errorf("a new connection by IPv%s: %v after %v", family, err, took)
		}
	}
	told(true)
	if err := c.Network.SetUnderlayMTU(1500); err != nil {
		t.Fatal(err)
	}
	moves("with the MTU of before")
	told(false)
}

// TestUplinkMTUShrinks: when the MTU of the uplink of VLAN networks shrinks, a connection
// goes on between containers of two hosts, and the host says what has happened.
func TestUplinkMTUShrinks(t *testing.T) {
	shared(t)
	on(t, 2, both, func(t *testing.T, driver string) {
		c := up(t, driver, "uplink", 2)
		c.netctl("network create -e vlan -p 60 -s 10.1.1.0/24 -g 10.1.1.254 --subnetv6 fd00:1::/64 vl")
		c.add(spec("a", "h1", "default/vl"), spec("b", "h2", "default/vl"))
		for _, family := range []string{"4", "6"} {
			if _, err := c.send("a", "b", family, 256<<10); err != nil {
				t.Fatal(err)
			}
		}
		told := func(want bool) {
			t.Helper()
			c.until(fmt.Sprintf("h1 to tell of a smaller MTU: %v", want), func(ctx context.Context) error {
				out, err := c.Masters.Netctl(ctx, "host", "inspect", "h1")
				if err == nil && strings.Contains(out, "VLAN networks carry 1350 bytes") != want {
					err = errors.New(out)
				}
				return err
			})
		}
		for _, mtu := range []string{"1350", "1500"} {
			for _, h := range c.Hosts() {
				if _, err := h.Run(t.Context(), "ip", "link", "set", "eth1", "mtu", mtu); err != nil {
					t.Fatal(err)
				}
			}
			told(mtu == "1350")
			for _, family := range []string{"4", "6"} {
				if took, err := c.send("a", "b", family, 256<<10); err != nil {
					t.Errorf("MTU %s, a connection by IPv%s: %v after %v", mtu, family, err, took)
				}
			}
		}
	})
}
