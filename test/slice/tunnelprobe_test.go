//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const (
	// cutReportedWithin and mendedReportedWithin are how long a status may say something else than tunnels do.
	cutReportedWithin    = 15 * time.Second
	mendedReportedWithin = 20 * time.Second
)

// TestHostsTestTheirTunnels: when the network between two of three hosts drops tunnel
// packets, or those of one direction, or the big ones, status soon names the two and not
// the third, and it says that all is well soon after the network is whole again.
func TestHostsTestTheirTunnels(t *testing.T) {
	shared(t)
	need(t, "/usr/sbin/nft", "/usr/bin/curl")
	onOne(t, all, hostsTestTheirTunnels)
}

func hostsTestTheirTunnels(t *testing.T, driver string) {
	c := up(t, driver, "probes", 3)
	c.netctl("network create -e vxlan -s 10.1.1.0/24 -g 10.1.1.254 vx")
	for _, h := range c.Hosts() {
		c.add(spec("c-"+h.Name, h.Name, "default/vx"))
	}
	h1, h2 := c.host("h1"), c.host("h2")
	switchDrops := func(rules ...string) {
		t.Helper()
		text := "add table bridge drops\ndelete table bridge drops\n"
		if len(rules) > 0 {
			text += "table bridge drops {\n chain forward {\n  type filter hook forward priority 0\n  " + strings.Join(rules, "\n  ") + "\n }\n}\n"
		}
		cmd := c.Fabric.Command(t.Context(), "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("this kernel cannot filter on a bridge: %v: %s", err, out)
		}
	}
	rule := func(from, to *testcluster.Host, what string) string {
		return fmt.Sprintf("ip saddr %s ip daddr %s udp dport 4789 %s drop", from.Address, to.Address, what)
	}
	// peers are the hosts that a host has found in a state.
	peers := func(ctx context.Context, h *testcluster.Host, state string, n int) error {
		out, err := h.Run(ctx, "curl", "-s", "http://127.0.0.1:9006/metrics")
		if err == nil && !strings.Contains(out, fmt.Sprintf("\ncontiv_netplugin_tunnel_peers{state=%q} %d\n", state, n)) {
			err = fmt.Errorf("%s: not %d hosts are %s", h.Name, n, state)
		}
		return err
	}
	well := func(ctx context.Context) error {
		var errs []error
		for _, h := range c.Hosts() {
			errs = append(errs, peers(ctx, h, "answering", 2))
		}
		if out, err := c.Masters.Netctl(ctx, "status"); err != nil {
			errs = append(errs, err, errors.New(out))
		}
		return errors.Join(errs...)
	}
	c.until("all tunnels to be tested", well)
	whole := c.scrape()
	for _, x := range []struct {
		name, state, says string
		rules             []string
	}{
		{"both directions", "silent", "are not answered, so containers there and here may be cut off", []string{rule(h1, h2, ""), rule(h2, h1, "")}},
		{"one direction", "silent", "are not answered, so containers there and here may be cut off", []string{rule(h1, h2, "")}},
		{"big packets", "small-only", "those of 1400 bytes pass", []string{rule(h1, h2, "ip length > 1460"), rule(h2, h1, "ip length > 1460")}},
	} {
		switchDrops(x.rules...)
		begun := time.Now()
		c.until(x.name+": status to name the hosts", func(ctx context.Context) error {
			out, err := c.Masters.Netctl(ctx, "status")
			_, out, bad := strings.Cut(out, "Not all is well")
			switch {
			case err == nil, !bad:
				return errors.New("all is well")
			case !strings.Contains(out, x.says), !strings.Contains(out, h1.Address.String()), !strings.Contains(out, h2.Address.String()):
				return errors.New(out)
			case strings.Contains(out, c.host("h3").Address.String()):
				t.Errorf("%s: the third host is named: %s", x.name, out)
			}
			return errors.Join(peers(ctx, h1, x.state, 1), peers(ctx, h2, x.state, 1), peers(ctx, c.host("h3"), "answering", 2))
		})
		if took := time.Since(begun); took > cutReportedWithin {
			t.Errorf("%s: status names them after %v, want %v at most", x.name, took, cutReportedWithin)
		}
		c.alertsFire(whole, c.scrape(), "ContivTunnels")
		if x.name == "both directions" { // the cut is known still when a netplugin behind it has begun again
			if err := errors.Join(h2.Agent().Stop(patience), h2.StartAgent(t.Context())); err != nil {
				t.Fatal(err)
			}
			c.until("the cut to be known", func(ctx context.Context) error {
				if peers(ctx, h1, "untested", 0) != nil || peers(ctx, h1, "answering", 2) == nil {
					t.Errorf("h1 has forgotten the cut")
				}
				return errors.Join(peers(ctx, h1, x.state, 1), peers(ctx, h2, x.state, 1))
			})
		}
		switchDrops()
		begun = time.Now()
		c.until(x.name+": all to be well", well)
		if took := time.Since(begun); took > mendedReportedWithin {
			t.Errorf("%s: all is well after %v, want %v at most", x.name, took, mendedReportedWithin)
		}
		t.Logf("%s: mended after %v", x.name, time.Since(begun))
	}
	// While a netplugin stops and starts, its tunnel is not reported as broken.
	if err := errors.Join(h2.Agent().Stop(patience), h2.StartAgent(t.Context())); err != nil {
		t.Fatal(err)
	}
	c.until("all tunnels to be tested again", well)
	for _, h := range c.Hosts() {
		if out, err := h.Run(t.Context(), "curl", "-s", "http://127.0.0.1:9006/healthz"); err != nil || !strings.HasPrefix(out, "ok") {
			t.Errorf("%s: %v %s", h.Name, err, out)
		}
	}
}
