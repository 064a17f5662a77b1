//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestNameOfAnAliveHostIsRefused checks that a second machine with a living host's name is
// refused, with a sentence that names the living one, and that the living one's
// containers do not lose a packet by it. Then, on one driver, the other host
// goes, is removed from the cluster, and comes back.
func TestNameOfAnAliveHostIsRefused(t *testing.T) {
	sharedOnEBPF(t, both)
	onOne(t, both, takenName)
}

func takenName(t *testing.T, driver string) {
	c := pairUp(t, driver, "name")
	h1, h2 := c.host("h1"), c.host("h2")
	c.losesNothing("a second host with a taken name", func(ctx context.Context) error {
		dir := t.TempDir()
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		out, err := h2.NS.Command(limited, filepath.Join(bin, "netplugin"), "--host", h1.Name, "--driver", "fake",
			"--ctrl-ip", h2.Control.String(), "--vtep-ip", "10.250.0.99", "--etcd-endpoints", c.Store.StoreURL(), "--dns", "off",
			"--state-dir", filepath.Join(dir, "state"), "--cni-socket", filepath.Join(dir, "cni.sock"), "--rest-address", "127.0.0.1:0").CombinedOutput()
		if err == nil || limited.Err() != nil {
			return fmt.Errorf("it ended with %w, want that it ends by itself with an error:\n%s", err, out)
		}
		for _, want := range []string{`the host name "h1" is in use`, h1.Control.String(), h1.Address.String(), "since 20", "--host"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("what it says lacks %q:\n%s", want, out)
			}
		}
		return nil
	})
	// And on a machine with containers, as by a mistake in what starts netplugin there.
	if err := h2.KillAgent(); err != nil {
		t.Fatal(err)
	}
	c.losesNothing("the other host's name on a host with containers", func(ctx context.Context) error {
		p, err := h2.LaunchAgentWith([]string{"--host", h1.Name})
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err = p.Wait(limited)
		if limited.Err() != nil || !strings.Contains(p.Tail(20), `the host name "h1" is in use`) {
			return fmt.Errorf("it ended with %w:\n%s", err, p.Tail(20))
		}
		return nil
	})
	if err := h2.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.hasEndpoints("blue:net", 3)
	c.add(spec("new", "h1", "blue/net/servers"))
	c.wants("c new tcp/80", testcluster.OK)
	if err := c.DelContainer(t.Context(), spec("new", "h1", "blue/net/servers")); err != nil {
		t.Error(err)
	}
	if conformance.Full() || driver == both[conformance.Choose("goesAndComesBack", len(both))] {
		c.goesAndComesBack("h2")
	}
}

// losesNothing pings every 10 ms, on one host and across hosts, while do goes on:
// no reply may be lost.
func (c *cluster) losesNothing(what string, do func(context.Context) error) {
	c.t.Helper()
	c.losesAtMost(0, what, do)
}

// losesAtMost is losesNothing for what may cost each series of pings some replies.
// A busy machine loses packets without do: a try that lost some is held against one
// without it, which has to have lost half as many of a hundred, or else it is made
// again. A fault of do's shows in all of three tries.
func (c *cluster) losesAtMost(most int, what string, do func(context.Context) error) {
	c.t.Helper()
	pings := func(do func(context.Context) error) map[string]testcluster.PingStats {
		c.t.Helper()
		_, pings := c.traffic(func(ctx context.Context, s *stream) error {
			return errors.Join(do(ctx), s.more(ctx, 4<<20)) // and some seconds on
		})
		return pings
	}
	tooMany := func(pings, without map[string]testcluster.PingStats) (out []string) {
		for name, p := range pings {
			w := without[name]
			if p.Lost() > most+2*w.Lost()*p.Sent/max(1, w.Sent) || p.Sent < 100 {
				out = append(out, fmt.Sprintf("ping %s: %s", name, p))
			}
		}
		return out
	}
	var lost []string
	for range 3 {
		with := pings(do)
		if lost = tooMany(with, nil); len(lost) == 0 || c.t.Failed() {
			return
		}
		if lost = tooMany(with, pings(func(context.Context) error { return nil })); len(lost) == 0 {
			c.t.Logf("%s: nearly as many were lost without it", what)
			return
		}
	}
	for _, l := range lost {
		c.t.Errorf("%s: %s, want at most %d lost", what, l, most)
	}
}

// TestEmptyStoreLosesNoPacket checks what an empty store in the place of the cluster's does:
// no packet is lost while it is there, every host says so, ADD fails with a
// sentence, DEL works; when the right one is back all goes on. And that empty
// stores which get the intent from a file are followed: by themselves when all
// that runs is in the file, else when an operator says so.
func TestEmptyStoreLosesNoPacket(t *testing.T) {
	sharedOnEBPF(t, both)
	onOne(t, both, storeLost)
}

func storeLost(t *testing.T, driver string) {
	c := pairUp(t, driver, "lost")
	leaves := spec("leaves", "h2", "blue/net/servers")
	c.add(leaves)
	first := true
	c.losesNothing("an empty store", func(ctx context.Context) error {
		if err := c.changesStore(ctx, "right", "wrong"); err != nil {
			return err
		}
		for _, h := range c.Hosts() {
			c.hostSays(ctx, h, "the store is")
		}
		if first {
			first = false
			if _, err := c.AddContainer(ctx, spec("new", "h1", "blue/net/servers")); err == nil || !strings.Contains(err.Error(), "the store is") {
				t.Errorf("ADD with an empty store: %v, want an error that says so", err)
			}
			if err := c.DelContainer(ctx, leaves); err != nil {
				t.Errorf("DEL with an empty store: %v", err)
			}
			if err := c.host("h2").RelaunchAgent(); err != nil {
				return err
			}
			c.hostSays(ctx, c.host("h2"), "the store is")
		}
		if err := c.changesStore(ctx, "wrong", "right"); err != nil {
			return err
		}
		for _, h := range c.Hosts() {
			if err := h.WaitAgent(ctx, h.Agent()); err != nil {
				return err
			}
		}
		return nil
	})
	c.hasEndpoints("blue:net", 3)
	c.add(spec("new", "h1", "blue/net/servers"))
	c.wants("c new tcp/80", testcluster.OK)
	n := 0
	c.intentFromFile(func(ctx context.Context) error {
		n++
		return c.changesStore(ctx, strconv.Itoa(n), "none")
	})
}

// changesStore puts the cluster's data aside under one name, and in their place what is
// aside under another, or nothing.
func (c *cluster) changesStore(ctx context.Context, from, to string) error {
	data := filepath.Join(filepath.Dir(c.host("h1").Dir), "master", "etcd")
	if err := c.Process("etcd").Kill(); err != nil {
		return err
	}
	return errors.Join(os.Rename(data, data+"."+from), renameIfThere(data+"."+to, data), c.Store.StartEtcd(ctx))
}

func renameIfThere(from, to string) error {
	if err := os.Rename(from, to); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// hostSays waits until a host's CNI STATUS fails with a sentence.
func (c *cluster) hostSays(ctx context.Context, h *testcluster.Host, words string) {
	c.t.Helper()
	err := testcluster.Until(ctx, h.Name+" to say "+words, func(ctx context.Context) error {
		if err := h.Status(ctx); err == nil || !strings.Contains(err.Error(), words) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	if err != nil {
		c.t.Error(err)
	}
}

// TestRestoredBackupCostsNoPacket checks that a backup that is restored costs no packet: also
// containers that were added after it keep address and traffic, on one host and
// across hosts, and what was removed after it stays so.
func TestRestoredBackupCostsNoPacket(t *testing.T) {
	sharedOnEBPF(t, both)
	onOne(t, both, restoreBackup)
}

func restoreBackup(t *testing.T, driver string) {
	c := pairUp(t, driver, "back", func(cfg *testcluster.Config) { cfg.Embedded = true })
	removed := spec("removed", "h2", "blue/net/servers")
	c.add(removed)
	dir := t.TempDir()
	backup := filepath.Join(dir, "contiv.backup")
	c.netctl("backup " + backup)
	if out, err := c.Masters.Netctl(t.Context(), "backup", backup); err == nil || !strings.Contains(out, "is there already") {
		t.Errorf("a second backup to one file: %v\n%s", err, out)
	}
	// The pings' containers are in no backup: they come after it.
	for _, name := range []string{"c", "s", "near"} {
		a, err := c.Container(name)
		if err != nil {
			t.Fatal(err)
		}
		s := a.ContainerSpec
		if err := c.DelContainer(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		c.add(s)
	}
	if err := c.DelContainer(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	before := map[string]netip.Addr{"c": c.addr("c", "4"), "s": c.addr("s", "4"), "near": c.addr("near", "4")}
	c.wants("c s tcp/80", testcluster.OK)
	c.losesNothing("a backup that is restored", func(ctx context.Context) error {
		if err := c.Process("netmaster").Kill(); err != nil {
			return err
		}
		out, err := c.Master.Command(ctx, filepath.Join(bin, "netmaster"), "--restore", backup,
			"--data-dir", filepath.Join(filepath.Dir(c.host("h1").Dir), "master", "data"), "--internal-address", "127.0.0.1:9999").CombinedOutput()
		if err != nil {
			return fmt.Errorf("restore: %w: %s", err, out)
		}
		if err := c.Masters.StartMaster(ctx); err != nil {
			return err
		}
		start := time.Now()
		for _, h := range c.Hosts() {
			if err := h.WaitAgent(ctx, h.Agent()); err != nil {
				return err
			}
		}
		t.Logf("hosts follow the restored store %v after netmaster", time.Since(start).Round(time.Millisecond))
		return nil
	})
	c.hasEndpoints("blue:net", 3)
	for name, addr := range before {
		if now := c.addr(name, "4"); now != addr {
			t.Errorf("%s had %s and has %s", name, addr, now)
		}
	}
	c.add(spec("new", "h1", "blue/net/servers"))
	for _, line := range []string{"c new tcp/80", "c s tcp/80", "c near udp/80", "s c tcp/80"} {
		c.wants(line, testcluster.OK)
	}
	c.wants("s near tcp/80", testcluster.Denied)
}
