//go:build integration

package slice

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// intentFromFile puts empty stores in the place of the cluster's, as
// docs/how-to/backup-and-restore.md tells to, and applies an export of the intent:
// first a file that lacks a container, which takes an operator's word, then a whole
// one. No packet is lost (on Open vSwitch next to none), and addresses and policy are
// as before. empty replaces
// the store.
func (c *cluster) intentFromFile(empty func(context.Context) error) {
	c.t.Helper()
	file, most := filepath.Join(c.t.TempDir(), "cluster.yaml"), c.otherNumbers()
	c.exported(file)
	c.add(spec("later", "h2", "blue/net/servers"))
	before := map[string][2]netip.Addr{}
	for _, name := range []string{"c", "s", "near", "new", "later"} {
		before[name] = [2]netip.Addr{c.addr(name, "4"), c.addr(name, "6")}
	}
	c.losesAtMost(most, "a file of the intent that lacks a container, and adoption", func(ctx context.Context) error {
		if err := c.applied(ctx, file, empty); err != nil {
			return err
		}
		c.hostSays(ctx, c.host("h2"), "it lacks 1 of 2 attachments")
		if err := testcluster.Until(ctx, "the store to be adopted", func(ctx context.Context) error {
			out, err := c.Masters.Netctl(ctx, "store", "adopt")
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		}); err != nil {
			return err
		}
		return c.followed(ctx)
	})
	check := func(extra string) {
		c.t.Helper()
		c.hasEndpoints("blue:net", len(before))
		list, err := c.Masters.Netctl(c.t.Context(), "endpoint", "ls", "--json")
		if err != nil {
			c.t.Fatal(err, list)
		}
		for name, a := range before {
			if !strings.Contains(list, `"`+a[0].String()+`"`) || !strings.Contains(list, `"`+a[1].String()+`"`) {
				c.t.Errorf("nobody has the addresses %s of %s any more:\n%s", a, name, list)
			}
		}
		c.add(spec(extra, "h1", "blue/net/servers"))
		for _, line := range []string{"c " + extra + " tcp/80", "c s tcp/80", "c later tcp/80", "c near udp/80", "s c tcp/80", "c s tcp/80 6"} {
			c.wants(line, testcluster.OK)
		}
		c.denied("with the intent from a file", "s near tcp/80", "near later tcp/80", extra+" s tcp/80")
		if err := c.DelContainer(c.t.Context(), spec(extra, "h1", "blue/net/servers")); err != nil {
			c.t.Error(err)
		}
		c.hasEndpoints("blue:net", len(before))
	}
	check("extra1")
	c.exported(file)
	c.losesAtMost(most, "a file of the intent, whole", func(ctx context.Context) error {
		if err := c.applied(ctx, file, empty); err != nil {
			return err
		}
		return c.followed(ctx)
	})
	check("extra2")
}

// exported writes the intent and what is in use into a file.
func (c *cluster) exported(file string) {
	c.t.Helper()
	text, err := c.Masters.Netctl(c.t.Context(), "export", "--in-use")
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		c.t.Fatal(err, text)
	}
}

// otherNumbers is how many pings may be lost when networks get other numbers. On Open
// vSwitch a network's number is its conntrack zone, so an answer matches no request from
// before the change. A busy machine may delay the packets on their way at that moment.
func (c *cluster) otherNumbers() int {
	if c.Config().Driver == testcluster.DriverEBPF {
		return 0
	}
	return 3
}

// TestAdoptingHostWaitsForTheOther checks that a host whose agent begins on another store, in which all
// that runs there is, waits for the other host of its last desired state, which that store has no
// record of before its agent begins again: they lose no ways to each other, but for a moment.
func TestAdoptingHostWaitsForTheOther(t *testing.T) {
	sharedOnEBPF(t, both)
	onOne(t, both, followedTogether)
}

func followedTogether(t *testing.T, driver string) {
	c := pairUp(t, driver, "both")
	h1, h2 := c.host("h1"), c.host("h2")
	c.until("h1 to write down that there is h2", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(h1.StateDir(), "hosts.json"))
		if err == nil && !strings.Contains(string(text), `"h2"`) {
			err = fmt.Errorf("it has %s", text)
		}
		return err
	})
	file, n := filepath.Join(t.TempDir(), "cluster.yaml"), 0
	c.exported(file)
	// The two hosts change to the store's numbers within some ten milliseconds of each other.
	c.losesAtMost(c.otherNumbers()+10, "a host that comes to another store later", func(ctx context.Context) error {
		if err := h2.KillAgent(); err != nil {
			return err
		}
		n++
		if err := c.applied(ctx, file, func(ctx context.Context) error { return c.changesStore(ctx, strconv.Itoa(n), "none") }); err != nil {
			return err
		}
		if err := h1.RelaunchAgent(); err != nil {
			return err
		}
		c.hostSays(ctx, h1, "for missing ones of hosts h2")
		if _, err := h2.LaunchAgent(); err != nil {
			return err
		}
		return c.followed(ctx)
	})
	c.wants("c s tcp/80", testcluster.OK)
}

// applied puts an empty store in the place of the cluster's, and a file of the
// intent into it once netmaster uses it.
func (c *cluster) applied(ctx context.Context, file string, empty func(context.Context) error) error {
	was, err := c.storeID(ctx)
	if err != nil {
		return err
	}
	if err := empty(ctx); err != nil {
		return err
	}
	if err := testcluster.Until(ctx, "netmaster to use the empty store", func(ctx context.Context) error {
		now, err := c.storeID(ctx)
		if err == nil && now == was {
			err = fmt.Errorf("it uses %s", was)
		}
		return err
	}); err != nil {
		return err
	}
	if out, err := c.Masters.Netctl(ctx, "apply", "-f", file); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (c *cluster) storeID(ctx context.Context) (string, error) {
	out, err := c.Masters.Netctl(ctx, "store", "info", "--quiet")
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), err
}

// followed waits until all hosts follow the store that netmaster uses.
func (c *cluster) followed(ctx context.Context) error {
	id, err := c.storeID(ctx)
	if err != nil {
		return err
	}
	for _, h := range c.Hosts() {
		if err := testcluster.Until(ctx, h.Name+" to follow store "+id, func(context.Context) error {
			text, err := os.ReadFile(filepath.Join(h.StateDir(), "store.json"))
			if err == nil && !strings.Contains(string(text), id) {
				err = fmt.Errorf("it follows %s", text)
			}
			return err
		}); err != nil {
			return err
		}
		if err := h.WaitAgent(ctx, h.Agent()); err != nil {
			return err
		}
	}
	return nil
}
