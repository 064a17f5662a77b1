//go:build integration

package slice

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestEachFieldOfNetworkPoliciesHasEffect writes network policies as users do, and sees what each
// field does to packets on two hosts, while labels come and change.
func TestEachFieldOfNetworkPoliciesHasEffect(t *testing.T) {
	shared(t)
	on(t, 1, []string{testcluster.DriverOVS, testcluster.DriverEBPF}, anywhere(networkPolicy))
}

// labelled is a container of the tenant blue that has labels from its start.
func labelled(name, host string, labels map[string]string) testcluster.ContainerSpec {
	s := spec(name, host, "blue/net")
	s.Labels, s.Listen = labels, []string{"tcp/80", "tcp/81"}
	return s
}

// policy makes a network policy of blue with netctl.
func (c *cluster) policy(name string, args ...string) {
	c.t.Helper()
	args = append([]string{"network-policy", "create", "--tenant", "blue"}, args...)
	if out, err := c.Masters.Netctl(c.t.Context(), append(args, name)...); err != nil {
		c.t.Fatal(err, out)
	}
}

func networkPolicy(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "netpol", 2, in(where))
	c.netctl("tenant create blue", "tenant create red", "network create -t blue -e vxlan -s 10.1.1.0/24 net")
	web, db := map[string]string{"app": "web"}, map[string]string{"app": "db", "tier": "back"}
	c.add(labelled("web", "h1", web), labelled("db", "h2", db), labelled("other", "h1", nil))
	for _, line := range []string{"other db tcp/80", "web db tcp/81", "other web tcp/80"} {
		c.wants(line, testcluster.OK)
	}

	// Applies, defaults, rules.
	c.policy("db", "--label", "app=db", "--default-in", "deny", "--rule", "in allow app=web tcp/80,90-99 log")
	c.wants("other db tcp/80", testcluster.Denied)
	c.wants("web db tcp/80", testcluster.OK)
	c.denied("by the default", "web db tcp/81", "web db icmp")
	c.wants("other web tcp/80", testcluster.OK) // the policy does not apply to web
	c.add(labelled("db2", "h1", db))
	c.denied("from the first packet on", "other db2 tcp/80", "web db2 tcp/81")
	c.wants("web db2 tcp/80", testcluster.OK)

	// One rule by itself: added, replaced, deleted.
	one := func(command string, args ...string) {
		t.Helper()
		if out, err := c.Masters.Netctl(t.Context(), append([]string{"network-policy", command, "--tenant", "blue", "db", "more"}, args...)...); err != nil {
			t.Fatal(err, out)
		}
	}
	one("rule-set", "in allow app=web tcp/81")
	c.wants("web db tcp/81", testcluster.OK)
	c.wants("other db tcp/80", testcluster.Denied)
	one("rule-set", "in allow tcp/80")
	c.wants("web db tcp/81", testcluster.Denied)
	c.wants("other db tcp/80", testcluster.OK)
	one("rule-rm")
	c.wants("other db tcp/80", testcluster.Denied)
	c.wants("web db tcp/80", testcluster.OK)

	// A tenant's policies are its own, and audit does nothing.
	for _, args := range [][]string{
		{"--tenant", "red", "--default-in", "deny", "--default-out", "deny", "all"},
		{"--tenant", "blue", "--mode", "audit", "--default-in", "deny", "--default-out", "deny", "--tier", "admin", "trial"},
	} {
		if out, err := c.Masters.Netctl(t.Context(), append([]string{"network-policy", "create"}, args...)...); err != nil {
			t.Fatal(err, out)
		}
	}

	// Tiers and orders.
	c.policy("first", "--tier", "admin", "--label", "app=db", "--rule", "in deny app=web", "--rule", "in allow 0.0.0.0/0 tcp/81 priority=60")
	c.wants("web db tcp/80", testcluster.Denied)
	c.wants("web db tcp/81", testcluster.OK)
	c.wants("other db tcp/81", testcluster.OK) // by its address
	c.netctl("network-policy rm -t blue first")
	c.wants("web db tcp/80", testcluster.OK)
	c.policy("early", "--order", "10", "--rule", "in allow tcp/81")
	c.policy("late", "--order", "20", "--rule", "in deny tcp/81")
	c.wants("other db tcp/81", testcluster.OK)
	c.policy("early", "--order", "30", "--rule", "in allow tcp/81")
	c.wants("other db tcp/81", testcluster.Denied)
	c.wants("other web tcp/80", testcluster.OK)
	c.policy("rest", "--tier", "baseline", "--default-in", "deny", "--default-out", "allow")
	c.wants("other web tcp/80", testcluster.Denied)
	c.policy("web", "--label", "app=web", "--default-in", "allow", "--default-out", "pass")
	c.wants("other web tcp/80", testcluster.OK)
	c.policy("web", "--label", "app=web", "--default-in", "pass", "--default-out", "deny")
	c.wants("other web tcp/80", testcluster.Denied)
	c.wants("web db tcp/80", testcluster.Denied)
	c.policy("web", "--label", "app=web", "--default-out", "allow")
	c.wants("web db tcp/80", testcluster.OK)

	// Labels that change, under a connection that stays allowed.
	conn, err := c.space("web").Dial(t.Context(), "tcp", netip.AddrPortFrom(c.addr("db", "4"), 80).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	relabel := func(name string, labels map[string]string) {
		t.Helper()
		if err := c.relabel(t.Context(), name, labels); err != nil {
			t.Fatal(err)
		}
	}
	relabel("web", map[string]string{"release": "2"}) // another identity
	relabel("other", web)
	c.wants("other db tcp/80", testcluster.OK)
	if err := says(conn, "db"); err != nil {
		t.Errorf("a connection that is allowed as before: %v", err)
	}
	relabel("other", map[string]string{"app": "none"})
	c.wants("other db tcp/80", testcluster.Denied)
	c.wants("web db tcp/80", testcluster.OK)
}
