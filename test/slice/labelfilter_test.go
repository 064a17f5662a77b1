//go:build integration

package slice

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestChangedLabelFilterLosesNoPacket takes a label out of all identities and lets it in
// again, under traffic that policies by another label allow: no packet is lost,
// what was denied stays so, and the label can be selected by afterwards.
func TestChangedLabelFilterLosesNoPacket(t *testing.T) {
	sharedOnEBPF(t, both)
	onOne(t, both, networkPolicyFilter)
}

func networkPolicyFilter(t *testing.T, driver string) {
	c := up(t, driver, "filter", 2)
	c.netctl("tenant create blue", "network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 net")
	for i, s := range []struct{ name, host, app string }{{"c", "h1", "client"}, {"near", "h1", "server"}, {"s", "h2", "server"}, {"other", "h2", "other"}} {
		c.add(labelled(s.name, s.host, map[string]string{"app": s.app, "build": strconv.Itoa(i)}))
	}
	c.policy("servers", "--label", "app=server", "--default-in", "deny", "--rule", "in allow app=client")
	for _, line := range []string{"c s tcp/80", "c near tcp/80"} {
		c.wants(line, testcluster.OK)
	}
	set := func(ctx context.Context, list string) error {
		if _, err := c.Masters.Netctl(ctx, "global", "set", "--generated-labels", list); err != nil {
			return err
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			out, err := c.Masters.Netctl(ctx, "global", "info")
			if err != nil || !strings.Contains(out, "not updated") {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	c.losesNothing("another list of generated labels", func(ctx context.Context) error {
		return errors.Join(set(ctx, "default,build"), set(ctx, "default"))
	})
	for _, list := range []string{"default,build", "default"} {
		if err := set(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		c.denied("the list is "+list, "other s tcp/80", "other near tcp/80")
		c.wants("c s tcp/81", testcluster.OK)
	}
	if _, err := c.Masters.Netctl(t.Context(), "global", "set", "--generated-labels", "app"); err == nil || !strings.Contains(err.Error(), "blue:servers") {
		t.Errorf("a list without the label that is selected by: %v", err)
	}
	c.policy("build", "--label", "build=2", "--order", "1", "--rule", "in deny app=client tcp/81")
	c.wants("c s tcp/81", testcluster.Denied)
	c.wants("c near tcp/81", testcluster.OK)
}
