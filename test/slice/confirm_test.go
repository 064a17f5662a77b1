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

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestChangesThatCutAHostOffRollBack: h2 reaches netmaster and the store by a VLAN's physical gateway, which a flag
// of its netplugin allows. An unconfirmed change to forwarding mode routing takes that
// gateway's address and so cuts the host off. Though its netplugin is killed and starts
// again meanwhile, the host rolls back by itself, reports, and all is as before. The same
// holds if netmaster and the store end meanwhile: then the hosts roll back without them.
func TestChangesThatCutAHostOffRollBack(t *testing.T) {
	shared(t)
	need(t, "/usr/bin/curl")
	onOne(t, both, cutOff)
}

func cutOff(t *testing.T, driver string) {
	c := up(t, driver, "cut", 2, func(cfg *testcluster.Config) {
		cfg.AgentArgs = append(cfg.AgentArgs, "--containers-reach-control-plane")
	})
	h1, h2 := c.host("h1"), c.host("h2")
	c.netctl("network create -n infra -e vlan -p 55 -s 10.1.10.0/24 -g 10.1.10.254 ways",
		"network create -e vxlan -s 10.1.1.0/24 -g 10.1.1.254 a", "network create -e vxlan -s 10.1.2.0/24 -g 10.1.2.254 b")
	c.add(spec("a1", "h1", "default/a"), spec("a2", "h2", "default/a"), spec("b1", "h1", "default/b"), spec("b2", "h2", "default/b"))

	gw, err := c.AddNamespace("gw")
	if err != nil {
		t.Fatal(err)
	}
	at, err := c.Network.JoinControl(gw, 21)
	if err := errors.Join(err, c.Network.JoinVLAN(gw, 221, 55)); err != nil {
		t.Fatal(err)
	}
	c.until("h2 to be on the VLAN", func(ctx context.Context) error {
		out, err := h2.Run(ctx, "ip", "-4", "-o", "addr", "show", "dev", "ways")
		if err == nil && !strings.Contains(out, "10.1.10.") {
			err = errors.New("it has no address there")
		}
		return err
	})
	master := netip.MustParsePrefix(strings.TrimSuffix(strings.TrimPrefix(c.Masters.MasterURL(), "http://"), ":9999") + "/32")
	for _, x := range []struct {
		ns   *testcluster.Namespace
		line string
	}{
		{gw, "ip addr add 10.1.10.254/24 dev eth1"},
		{gw, "sysctl -q -w net.ipv4.ip_forward=1"},
		{gw, "sysctl -q -w net.ipv4.conf.all.rp_filter=0"},
		{c.Master, "sysctl -q -w net.ipv4.conf.all.rp_filter=0"},
		{c.Master, "ip route add 10.1.10.0/24 via " + at.String()},
		{h2.NS, "ip route add " + master.String() + " via 10.1.10.254 dev ways"},
	} {
		f := strings.Fields(x.line)
		if out, err := x.ns.Command(t.Context(), f[0], f[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", x.line, err, out)
		}
	}
	reaches := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := h2.Run(ctx, "curl", "-sf", "--max-time", "2", "-o", "/dev/null", c.Masters.MasterURL()+"/readyz")
			if (err == nil) != want {
				return fmt.Errorf("asking netmaster: %w", errors.Join(err, errors.New("has a problem")))
			}
			return nil
		}
	}
	mode := func(h *testcluster.Host, from, to string, want model.FwdMode) {
		t.Helper()
		c.until(fmt.Sprintf("%s to be in mode %v", h.Name, want), func(context.Context) error {
			verdict := testcluster.Denied
			if want == model.FwdRouting {
				verdict = testcluster.OK
			}
			if a := c.ask(from+" "+to+" tcp/80", time.Second); a.Verdict != verdict {
				return fmt.Errorf("%s to %s: %s", from, to, a)
			}
			return nil
		})
	}
	talks := func(when string) {
		t.Helper()
		for _, pair := range []string{"a1 a2", "a2 a1", "b1 b2", "b2 b1"} {
			c.until(when+": "+pair, func(context.Context) error {
				if a := c.ask(pair+" icmp", time.Second); a.Verdict != testcluster.OK {
					return errors.New(a.String())
				}
				return nil
			})
		}
	}
	var unchanged scraped
	try := func() {
		t.Helper()
		c.netctl("global set --fwd-mode routing --confirm-within 45s")
		c.alertsFire(unchanged, c.scrapedWhen("the change to wait", map[string]float64{"contiv_changes_pending": 1}), "ContivChangeOnTrial")
		if out, err := c.Masters.Netctl(t.Context(), "status"); !strings.Contains(out+fmt.Sprint(err), " is unconfirmed: in ") { // whatever else is wrong
			t.Errorf("nothing says that it is unconfirmed: %v %s", err, out)
		}
		mode(h2, "a2", "b2", model.FwdRouting)
		c.until("h2 to be cut off", func(ctx context.Context) error { // once it asks for the gateway's MAC again
			_, err := h2.Run(ctx, "ip", "neigh", "flush", "dev", "ways")
			return errors.Join(err, reaches(false)(ctx))
		})
	}

	if err := h2.RestartAgent(t.Context()); err != nil { // all that it says goes that way now
		t.Fatal(err)
	}
	c.until("h2 to reach netmaster by the gateway", reaches(true))
	c.hostsAway(0)
	talks("at first")
	unchanged = c.scrape()
	try()
	if err := h2.RelaunchAgent(); err != nil {
		t.Fatal(err)
	}
	c.until("h2 to go back alone, and to reach netmaster", reaches(true))
	mode(h2, "a2", "b2", model.FwdBridge)
	mode(h1, "a1", "b1", model.FwdBridge)
	c.hostsAway(0)
	talks("back")
	if out, err := c.Masters.Netctl(t.Context(), "pending", "-q"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("what waits: %q, %v", out, err)
	}
	c.until("h2 to have heard", func(ctx context.Context) error {
		s, err := h2.AgentState(ctx)
		if err == nil && len(s.Problems) > 0 {
			err = fmt.Errorf("%q", s.Problems)
		}
		return err
	})
	c.until("h2 to say everywhere that it rolled back", func(ctx context.Context) error {
		hosts, err := c.Masters.Netctl(ctx, "host", "ls")
		status, err2 := c.Masters.Netctl(ctx, "status")
		one, err3 := c.Masters.Netctl(ctx, "host", "inspect", "h2")
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		if !regexp.MustCompile(`(?m)^h2 +alive, rolled back `).MatchString(hosts) || strings.Count(hosts, "rolled back") != 1 {
			return fmt.Errorf("hosts: %s", hosts)
		}
		if !strings.Contains(status, "Warning: host h2: rolled-back: change ") || !strings.Contains(one, `"name": "rolled-back"`) {
			return fmt.Errorf("status: %s %s", status, one)
		}
		if v, there := c.scrape().of(`contiv_netplugin_condition instance="h2:9006" condition="rolled-back"`); !there || v != 0 {
			return errors.New("its metric does not say so")
		}
		return nil
	})
	c.alertsFire(unchanged, c.scrape(), "ContivRolledBack")
	if err := reaches(true)(t.Context()); err != nil {
		t.Error("it has heard, and is cut off again: ", err)
	}

	try()
	mode(h1, "a1", "b1", model.FwdRouting)
	if err := errors.Join(c.Process("netmaster").Kill(), c.Process("etcd").Kill()); err != nil {
		t.Fatal(err)
	}
	mode(h1, "a1", "b1", model.FwdBridge)
	mode(h2, "a2", "b2", model.FwdBridge)
	talks("nobody is there")
	if err := errors.Join(c.Store.StartEtcd(t.Context()), c.Masters.StartMaster(t.Context())); err != nil {
		t.Fatal(err)
	}
	c.until("h2 to reach netmaster again", reaches(true))
	c.hostsAway(0)
	c.until("nothing to wait", func(ctx context.Context) error {
		out, err := c.Masters.Netctl(ctx, "pending", "-q")
		if err == nil && strings.TrimSpace(out) != "" {
			err = errors.New(out)
		}
		return err
	})
	mode(h2, "a2", "b2", model.FwdBridge)
	talks("after all")
}
