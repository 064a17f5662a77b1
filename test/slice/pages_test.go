//go:build integration

package slice

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

var (
	pageRE = regexp.MustCompile("(?s)<!-- run: ([a-z ]+) -->\n```sh\n(.*?)```")
	wordRE = regexp.MustCompile(`"[^"]*"|\S+`)
)

// page runs the blocks of a user's page that carry a mark, in order.
func (c *cluster) page(name, mark string, each func(block string)) {
	c.t.Helper()
	root, err := testcluster.Root(c.t.Context(), ".")
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "how-to", name))
	if err != nil {
		c.t.Fatal(err)
	}
	n := 0
	for _, m := range pageRE.FindAllStringSubmatch(string(text), -1) {
		if m[1] != mark {
			continue
		}
		n++
		for line := range strings.Lines(m[2]) {
			words := wordRE.FindAllString(line, -1)
			if len(words) == 0 || words[0] != "netctl" {
				c.t.Fatalf("%s: %q is no netctl command", name, line)
			}
			for i := range words {
				words[i] = strings.Trim(words[i], `"`)
			}
			if _, err := c.Masters.Netctl(c.t.Context(), words[1:]...); err != nil {
				c.t.Fatal(err)
			}
		}
		if each != nil {
			each(m[2])
		}
	}
	if n == 0 {
		c.t.Fatalf("%s has no block %q", name, mark)
	}
}

// TestStepsOfPagesLoseNothing runs what docs/how-to/changing.md and baseline.md tell to do: changing.md
// under traffic of which nothing may be lost, baseline.md with a look at who
// reaches whom. Then it holds the pages of metrics, the alerts and the dashboard to what the
// cluster tells.
func TestStepsOfPagesLoseNothing(t *testing.T) { onOne(t, both, pages) }

func pages(t *testing.T, driver string) {
	c := up(t, driver, "pages", 2, func(cfg *testcluster.Config) { cfg.Embedded = true })
	c.page("changing.md", "changing", nil)
	serving := func(name, host, group string, ports ...string) testcluster.ContainerSpec {
		s := spec(name, host, "shop/net/"+group)
		s.Listen = ports
		return s
	}
	c.add(serving("w", "h1", "web"), serving("near", "h1", "db", "tcp/81"), serving("far", "h2", "db", "tcp/81"))
	pings, conns := map[string]*testcluster.Pinger{}, map[string]net.Conn{}
	for _, to := range []string{"near", "far"} {
		c.wants("w "+to+" tcp/81", testcluster.OK)
		c.wants("w "+to+" icmp", testcluster.OK)
		p, err := c.space("w").StartPing(c.addr(to, "4"), 10*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop() //nolint:errcheck // stopped below, where nothing failed before
		pings[to] = p
		if conns[to], err = c.space("w").Dial(t.Context(), "tcp", netip.AddrPortFrom(c.addr(to, "4"), 81).String()); err != nil {
			t.Fatal(err)
		}
		defer conns[to].Close()
	}
	goOn := func(block string) {
		t.Helper()
		for to, conn := range conns {
			if err := says(conn, to); err != nil {
				t.Errorf("the connection to %s after\n%s%v", to, block, err)
			}
		}
	}
	c.page("changing.md", "changing with traffic", goOn)
	c.add(serving("w2", "h2", "web-2"))
	for to, p := range pings {
		if err := testcluster.Until(t.Context(), "enough pings to judge by", func(context.Context) error {
			if n := p.Between(time.Time{}, time.Now()).Sent; n < 20 {
				return fmt.Errorf("%d to %s", n, to)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		s := p.Between(time.Time{}, time.Now())
		t.Logf("ping %s: %s", to, s)
		// A busy switch in user space loses a packet now and then; a gap is more.
		if driver == testcluster.DriverEBPF && s.Lost() > 0 || s.Gap > 100*time.Millisecond || s.Sent < 20 {
			t.Errorf("ping %s while things changed: %s", to, s)
		}
	}
	for _, line := range []string{"w2 near tcp/81", "w2 far tcp/81", "w2 far icmp"} {
		c.wants(line, testcluster.OK)
	}
	if err := c.DelContainer(t.Context(), serving("w", "h1", "web")); err != nil {
		t.Error(err)
	}
	c.page("changing.md", "changing afterwards", nil)
	c.wants("w2 near tcp/81", testcluster.OK)
	if err := c.DelContainer(t.Context(), serving("w2", "h2", "web-2")); err != nil {
		t.Error(err)
	}
	c.baseline()
	for _, conn := range conns {
		_ = conn.Close() // its container has gone
	}
	c.metrics(driver)
}

// baseline runs baseline.md where changing.md has ended.
func (c *cluster) baseline() {
	c.t.Helper()
	c.netctl("group create -t shop --replace net db", "group rm -t shop db-of-2", "policy rm -t shop db-2")
	c.page("baseline.md", "baseline", nil)
	at := func(name, host, group string) testcluster.ContainerSpec {
		s := spec(name, host, "shop/net/"+group)
		s.Listen = []string{"tcp/5432", "tcp/80"}
		return s
	}
	c.add(at("bweb", "h1", "web"), at("bdb", "h2", "db"), at("bnew", "h1", "new"), at("bdb1", "h1", "db"))
	c.wants("bweb bdb tcp/5432", testcluster.OK)
	c.wants("bweb bdb1 tcp/5432", testcluster.OK)
	c.denied("by the baseline", "bweb bdb tcp/80", "bdb bweb tcp/80", "bnew bdb tcp/5432", "bweb bnew tcp/80", "bnew bweb icmp", "bdb1 bdb tcp/5432")
	conn, err := c.space("bnew").Dial(c.t.Context(), "tcp", netip.AddrPortFrom(hostPrivate, 53).String())
	if err != nil {
		c.t.Errorf("who has only the baseline asks for names: %v", err)
		return
	}
	_ = conn.Close() // the name server answered
	// What follows has containers that no policy is for, and counts what rules deny.
	for _, group := range []string{"web", "db"} {
		if _, err := c.Masters.Netctl(c.t.Context(), "network-policy", "create", "-t", "shop", "--tier", "baseline", "--group", group,
			"--rule", "in deny", "--rule", "out deny", group+"-baseline"); err != nil {
			c.t.Fatal(err)
		}
	}
	c.netctl("network-policy rm -t shop baseline")
}

// says asks over a connection who is there.
func says(conn net.Conn, want string) error {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, "who"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && strings.TrimSpace(line) != want {
		err = fmt.Errorf("answered by %q", line)
	}
	return err
}
