//go:build integration

package slice

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestFirstPacketArrives sends one single packet to a container of another host, right
// after the first containers of both hosts have come: it arrives, and so does
// the answer. (In user space Open vSwitch drops what leads to a neighbour that
// it does not know.)
func TestFirstPacketArrives(t *testing.T) {
	on(t, 1, []string{testcluster.DriverOVS, testcluster.DriverEBPF}, firstPacket)
}

func firstPacket(t *testing.T, driver string) {
	c := up(t, driver, "first", 2)
	c.netctl("tenant create blue", "network create -t blue -e vxlan -s 10.1.1.0/24 vx")
	c.add(spec("s", "h2", "blue/vx"))
	for _, name := range []string{"c1", "c2"} { // the second one finds everything known
		c.add(spec(name, "h1", "blue/vx"))
		// That the other host has heard of the container is another matter.
		c.knows("h2", name)
		conn, err := c.space(name).Dial(t.Context(), "udp", netip.AddrPortFrom(c.addr("s", "4"), 80).String())
		if err != nil {
			t.Fatal(err)
		}
		if err := one(conn); err != nil {
			t.Errorf("%s: the first packet, or its answer, was lost: %v", name, err)
		}
	}
}

// one sends one packet and waits for one.
func one(c net.Conn) error {
	defer c.Close()
	return echo(c, 2*time.Second)
}

// knows waits until a host's data plane has a container's address, without a
// packet being sent.
func (c *cluster) knows(host, name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	if err := testcluster.Until(ctx, host+" to know "+name, func(ctx context.Context) error {
		out, err := c.host(host).Run(ctx, "curl", "-s", "http://127.0.0.1:9006/inspect/driver")
		if err == nil && !strings.Contains(out, c.addr(name, "4").String()) {
			err = errors.New("it does not")
		}
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
}
