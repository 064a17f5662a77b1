//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestInfraNetworksConnectHostsAndContainers checks infra networks of both encapsulations and families: hosts and
// containers reach each other on them, by policy; a host keeps its addresses when its
// interface is deleted, when netplugin is killed and when the machine is restarted; it
// forwards nothing from there, is kept from containers' questions to the control plane,
// has no default route there, and tells when it cannot have
// the interface; and with the network all goes.
func TestInfraNetworksConnectHostsAndContainers(t *testing.T) {
	shared(t)
	onOne(t, []string{testcluster.DriverEBPF, testcluster.DriverOVS, testcluster.DriverMixed}, infra)
}

func infra(t *testing.T, driver string) {
	c := up(t, driver, "infra", 2, func(cfg *testcluster.Config) { cfg.AgentArgs = []string{"--rest-address", "0.0.0.0:9006"} })
	h1, h2 := c.host("h1"), c.host("h2")
	run := func(h *testcluster.Host, line string) (string, error) {
		f := strings.Fields(line)
		return h.Run(t.Context(), f[0], f[1:]...)
	}
	wait := func(what string, is func() error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := testcluster.Until(ctx, what, func(context.Context) error { return is() }); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run(h2, "ip link add taken type veth peer name taken2"); err != nil {
		t.Fatal(err, out)
	}
	c.netctl("network create -n infra -e vxlan -s 10.1.9.0/24 --subnetv6 fd00:9::/64 -g 10.1.9.254 tunnelled",
		"network create -n infra -e vlan -s 10.1.10.0/24 tagged", "network create -n infra -e vxlan -s 10.1.11.0/24 taken",
		"policy create none", "policy rule-add -d in -j deny -n tunnelled none 1", "group create -p none tunnelled shut")
	addrs := func(h *testcluster.Host, name string) (all string) {
		t.Helper()
		wait(h.Name+" to have "+name, func() error {
			out, err := run(h, "ip -o addr show scope global dev "+name)
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if all = strings.Join(regexp.MustCompile(`(10\.1\.|fd00:9::)\S+`).FindAllString(out, -1), " "); all == "" {
				return errors.New("it has no address: " + out)
			}
			return nil
		})
		return all
	}
	addr := func(h *testcluster.Host, name, family string) netip.Addr {
		t.Helper()
		for s := range strings.FieldsSeq(addrs(h, name)) {
			if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() == (family == "4") {
				return p.Addr()
			}
		}
		t.Fatalf("%s has no IPv%s address on %s", h.Name, family, name)
		return netip.Addr{}
	}
	before := map[string]string{}
	for _, h := range []*testcluster.Host{h1, h2} {
		for _, name := range []string{"tunnelled", "tagged"} {
			before[h.Name+name] = addrs(h, name)
		}
	}
	c.add(spec("c", "h1", "default/tunnelled"), spec("d", "h2", "default/tunnelled"), spec("v", "h2", "default/tagged"), spec("shut", "h2", "default/tunnelled/shut"))
	until := func(what string, from *testcluster.Namespace, to testcluster.Target, want testcluster.Verdict) {
		t.Helper()
		wait(fmt.Sprintf("%s to %v", what, to), func() error {
			if a := from.Probe(t.Context(), to, time.Second); a.Verdict != want {
				return fmt.Errorf("it is %s, want %s", a, want)
			}
			return nil
		})
	}
	all := func(when string) {
		t.Helper()
		for _, family := range []string{"4", "6"} {
			for i, h := range []*testcluster.Host{h1, h2} {
				until(when+": "+h.Name, h.NS, testcluster.Target{Proto: "icmp", Addr: addr([]*testcluster.Host{h2, h1}[i], "tunnelled", family)}, testcluster.OK)
				for _, name := range []string{"c", "d"} {
					until(when+": "+h.Name, h.NS, testcluster.Target{Proto: "tcp", Addr: c.addr(name, family), Port: 80}, testcluster.OK)
					until(when+": "+name, c.space(name), testcluster.Target{Proto: "icmp", Addr: addr(h, "tunnelled", family)}, testcluster.OK)
				}
				until(when+": "+h.Name, h.NS, testcluster.Target{Proto: "tcp", Addr: c.addr("shut", family), Port: 80}, testcluster.Denied)
			}
		}
		for _, h := range []*testcluster.Host{h1, h2} {
			until(when+": "+h.Name, h.NS, testcluster.Target{Proto: "udp", Addr: c.addr("v", "4"), Port: 80}, testcluster.OK)
			for _, name := range []string{"tunnelled", "tagged"} {
				if now := addrs(h, name); now != before[h.Name+name] {
					t.Errorf("%s: %s has %s on %s, had %s", when, h.Name, now, name, before[h.Name+name])
				}
			}
		}
	}
	all("at first")

	// Containers reach no host's control plane, at that address or by it at another one.
	for _, h := range []*testcluster.Host{h1, h2} {
		if out, err := c.space("c").Command(t.Context(), "ip", "route", "replace", h.Control.String(), "via", addr(h, "tunnelled", "4").String()).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, a := range []netip.Addr{addr(h, "tunnelled", "4"), addr(h, "tunnelled", "6"), h.Control} {
			to := testcluster.Target{Proto: "tcp", Addr: a, Port: 9006}
			until("a container at the control plane of "+h.Name, c.space("c"), to, testcluster.Denied)
			if a != h.Control {
				until("a host at the control plane of "+h.Name, h1.NS, to, testcluster.OK)
			}
		}
		if out, err := c.space("c").Command(t.Context(), "ip", "route", "del", h.Control.String()).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}

	// The host takes what is for it and nothing else, though it forwards.
	for _, family := range []string{"4", "6"} {
		elsewhere := "203.0.113.9"
		if family == "6" {
			elsewhere = "2001:db8:77::9"
			if out, err := run(h1, "sysctl -q -w net.ipv6.conf.all.forwarding=1"); err != nil {
				t.Fatal(err, out)
			}
		} else if out, err := run(h1, "sysctl -q -w net.ipv4.ip_forward=1"); err != nil {
			t.Fatal(err, out)
		}
		from := " from " + c.addr("c", family).String() + " iif tunnelled"
		if out, err := run(h1, "ip route get "+addr(h1, "tunnelled", family).String()+from); err != nil {
			t.Error(err, out)
		}
		if out, err := run(h1, "ip route add "+elsewhere+" dev lo"); err != nil {
			t.Fatal(err, out)
		}
		if out, err := run(h1, "ip route get "+elsewhere+from); err == nil && !strings.Contains(out, "blackhole") {
			t.Error("it would forward: ", out)
		}
	}
	if out, err := run(h1, "ip route show default dev tunnelled"); err != nil || strings.TrimSpace(out) != "" {
		t.Error("a default route:", out, err)
	}
	// A host that has an interface of that name already keeps it, and says so.
	wait("the doctor to tell", func() error {
		out, err := c.Masters.Netctl(t.Context(), "doctor")
		if !strings.Contains(out, "infra network default:taken") || !strings.Contains(out, "create interface taken") {
			return fmt.Errorf("it says %s: %w", out, errors.Join(err, errors.New("not that")))
		}
		return nil
	})

	// Deleted by somebody.
	if out, err := run(h1, "ip link del tunnelled"); err != nil {
		t.Fatal(err, out)
	}
	all("deleted")
	if out, err := run(h1, "ip addr flush dev tagged"); err != nil {
		t.Fatal(err, out)
	}
	all("flushed")
	// Killed.
	if err := errors.Join(h1.KillAgent(), h1.StartAgent(t.Context())); err != nil {
		t.Fatal(err)
	}
	all("killed")
	// The machine is restarted: neither interfaces nor the kernel's number are as before.
	if err := h1.KillAgent(); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(h1.StateDir(), "attach", "*.json"))
	if err != nil || len(entries) == 0 {
		t.Fatal("no journal", err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(e, regexp.MustCompile(`"bootId":"[^"]*"`).ReplaceAll(data, []byte(`"bootId":"another"`)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tunnelled", "tagged"} {
		if out, err := run(h1, "ip link del "+name); err != nil {
			t.Fatal(err, out)
		}
	}
	if err := h1.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	all("restarted")

	// A network with a container stays, and so do the hosts' interfaces.
	if out, err := c.Masters.Netctl(t.Context(), "network", "rm", "tunnelled"); err == nil {
		t.Error("a network with containers was deleted:", out)
	}
	all("kept")
	if err := c.DelContainer(t.Context(), spec("v", "h2", "default/tagged")); err != nil {
		t.Fatal(err)
	}
	c.netctl("network rm tagged", "network rm taken")
	for _, h := range []*testcluster.Host{h1, h2} {
		wait(h.Name+" to let go", func() error {
			if out, err := run(h, "ip link show dev tagged"); err == nil {
				return errors.New(out)
			}
			if out, err := run(h, "ip rule"); err != nil || strings.Contains(out, "tagged") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if out, err := run(h2, "ip link show dev taken"); err != nil {
		t.Error("somebody else's interface has gone:", err, out)
	}
}
