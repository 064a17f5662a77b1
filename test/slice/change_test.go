//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestDriverChangesUnderTraffic changes the driver of each host with containers running and
// under traffic, from Open vSwitch to eBPF and back: the containers keep their
// addresses and connections, go on by the same policy, nothing of the old driver
// is left, and the outage is a part of the time that the change takes.
func TestDriverChangesUnderTraffic(t *testing.T) {
	on(t, 1, []string{testcluster.DriverOVS}, changeDriver)
}

func changeDriver(t *testing.T, driver string) {
	c := pairUp(t, driver, "driver")
	var idle []testcluster.ContainerSpec // ports that take time to change as well
	for i := range idlePorts {
		idle = append(idle, spec(fmt.Sprintf("idle%d", i), "h1", "blue/net/clients"))
	}
	c.add(idle...)
	for _, h := range c.Hosts() {
		if on := offloads(t, c, h); on {
			t.Errorf("containers of %s have checksum offload on, which Open vSwitch in user space cannot take", h.Name)
		}
	}
	before := c.Containers()
	var outages, changes time.Duration
	for _, to := range []string{testcluster.DriverEBPF, testcluster.DriverOVS} {
		for _, h := range c.Hosts() {
			var took, outage time.Duration
			stall, pings := c.traffic(func(ctx context.Context, s *stream) error {
				if err := s.more(ctx, 1<<20); err != nil {
					return err
				}
				start := time.Now()
				err := h.ChangeDriver(ctx, to)
				took = time.Since(start)
				soon, cancel := context.WithTimeout(ctx, 15*time.Second)
				defer cancel()
				return errors.Join(err, s.more(soon, 1<<20))
			})
			t.Logf("%s changed to %s in %v: TCP stood still for %v, pings for %v (across hosts), %v (IPv6), %v (on one host)", h.Name, to,
				took.Round(time.Millisecond), stall.Round(time.Millisecond), pings["across hosts"].Gap.Round(time.Millisecond),
				pings["across hosts, IPv6"].Gap.Round(time.Millisecond), pings["on one host"].Gap.Round(time.Millisecond))
			for _, p := range pings {
				outage = max(outage, p.Gap)
			}
			outages, changes = outages+outage, changes+took
			if err := leftOf(t.Context(), h, to); err != nil {
				t.Errorf("%s has changed to %s: %v", h.Name, to, err)
			}
			if on := offloads(t, c, h); on != (to == testcluster.DriverEBPF) {
				t.Errorf("%s has changed to %s: checksum offload of its containers is on: %v", h.Name, to, on)
			}
			for _, line := range []string{"c s tcp/80", "s c tcp/80", "c s udp/80 6", "c near icmp", "near c udp/80"} {
				c.wants(line, testcluster.OK)
			}
			if a := c.space("c").Probe(t.Context(), testcluster.Target{Proto: "icmp", Addr: hostPrivate}, 3*time.Second); a.Verdict != testcluster.OK {
				t.Errorf("%s has changed to %s: c does not reach its host: %s", h.Name, to, a)
			}
			c.denied(h.Name+" has changed to "+to, "s near tcp/80", "near s udp/80 6")
		}
		added := spec("new"+to, "h1", "blue/net/clients")
		c.add(added)
		c.wants("new"+to+" s tcp/80", testcluster.OK)
		if err := c.DelContainer(t.Context(), added); err != nil {
			t.Error(err)
		}
	}
	// The two drivers change places in a part of the time that a change takes:
	// everything is prepared before.
	if bound := changes/3 + time.Second; outages > bound {
		t.Errorf("four changes in %v cut the traffic for %v, want %v at most", changes, outages, bound)
	}
	for _, a := range before {
		if err := c.CNICheck(t.Context(), a.ContainerSpec); err != nil {
			t.Errorf("CHECK after the changes: %v", err)
		}
	}
}

// idlePorts is how many idle containers h1 has.
const idlePorts = 20

// hostPrivate is the host's address for its containers, unless the cluster is configured
// otherwise.
var hostPrivate = netip.MustParseAddr("172.19.255.254")

// leftOf tells what is left of the driver that a host has changed from.
func leftOf(ctx context.Context, h *testcluster.Host, to string) error {
	if to == testcluster.DriverEBPF {
		out, err := h.Switch.Vsctl(ctx, "list-br")
		if err == nil && strings.Contains(out, "contiv") {
			err = fmt.Errorf("Open vSwitch has bridges %q", strings.Fields(out))
		}
		return err
	}
	if entries, err := os.ReadDir(h.PinDir()); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("pin directory %s is there: %v, %w", h.PinDir(), entries, err)
	}
	links, err := h.NS.Links()
	if i := slices.IndexFunc(links, func(l string) bool { return strings.HasPrefix(l, "contivVxlan") }); err == nil && i >= 0 {
		err = fmt.Errorf("interface %s is there", links[i])
	}
	return err
}

// offloads reports whether any container of a host has checksum offload on.
func offloads(t *testing.T, c *cluster, h *testcluster.Host) bool {
	t.Helper()
	on := false
	for _, a := range c.Containers() {
		if a.Host != h.Name {
			continue
		}
		out, err := c.space(a.Name).Command(t.Context(), "ethtool", "-k", "eth0").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		on = on || strings.Contains(string(out), "tx-checksumming: on")
	}
	return on
}
