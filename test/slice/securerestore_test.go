//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestRestoredSecureClusterKeepsItsHosts: a backup is restored in the directory of a secure netmaster while
// containers of three hosts talk. Hosts come back by themselves, people by the certificates
// and the login that they had. No packet is lost, also to what was attached after the backup.
func TestRestoredSecureClusterKeepsItsHosts(t *testing.T) {
	shared(t)
	on(t, 1, both, func(t *testing.T, driver string) { restoreSecure(t, driver, "seca", (*person).inPlace) })
}

// TestLostSecureDirectoryIsRestored: the netmaster directory of a secure cluster is lost while
// containers of three hosts talk, and restored from a backup by the page. Users log in by
// their tokens with the new authority. Hosts go on forwarding, say what to do, attach
// nothing, and join again one after the other. No packet is lost, also to containers
// attached after the backup.
func TestLostSecureDirectoryIsRestored(t *testing.T) {
	shared(t)
	if !conformance.Full() {
		t.Skip("it takes minutes; internal/netmaster/membership and cmd/netmaster restore members")
	}
	on(t, 1, both, func(t *testing.T, driver string) { restoreSecure(t, driver, "secb", (*person).again) })
}

func restoreSecure(t *testing.T, driver, name string, restore func(*person, context.Context, string, int) error) {
	c := pairUp(t, driver, name, func(cfg *testcluster.Config) { cfg.Embedded, cfg.Consul, cfg.Hosts = true, "", 3 })
	s := secured(c)
	if err := s.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &person{securing: s, home: t.TempDir(), restore: restore}
	out, err := s.anna(t.Context(), "token", "create", "-q", "bert", "--role", "cluster-admin")
	if p.token = strings.TrimSpace(out); err != nil {
		t.Fatal(err, out)
	}
	if err := p.login(t.Context()); err != nil {
		t.Fatal(err)
	}
	tries := 0
	c.losesNothing("a secure store that is restored", func(ctx context.Context) error {
		tries++
		return p.restored(ctx, tries)
	})
}

// person is somebody with a token of netmaster's.
type person struct {
	*securing
	home, token string
	restore     func(p *person, ctx context.Context, backup string, try int) error
}

func (p *person) runs(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := p.Master.Command(ctx, filepath.Join(p.Config().BinDir, "netctl"), append([]string{"--netmaster", "https://" + net.JoinHostPort(p.addr, "9999")}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+p.home)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("netctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// login takes netmaster's ca.crt along, as the page has it.
func (p *person) login(ctx context.Context) error {
	ca := filepath.Join(p.home, "ca.crt")
	if err := copyFiles(filepath.Join(p.data, "join", "clients", "issued", "netmaster"), p.home, []string{"ca.crt"}); err != nil {
		return err
	}
	_, err := p.runs(ctx, p.token+"\n", "login", "--token", "--ca-file", ca)
	return err
}

// restored backs up, loses the directory and restores it.
func (p *person) restored(ctx context.Context, try int) error {
	backup := filepath.Join(p.home, fmt.Sprint(try, ".backup"))
	if _, err := p.runs(ctx, "", "backup", backup); err != nil {
		return err
	}
	// Attached after the backup, on the host that joins last.
	late := spec(fmt.Sprint("late", try), "h3", "blue/net/servers")
	if _, err := p.AddContainer(ctx, late); err != nil {
		return err
	}
	if _, err := p.Serve(late.Name, late.Listen...); err != nil {
		return err
	}
	pinging, stop := context.WithCancel(ctx)
	defer stop()
	pinged := make(chan error, 1)
	go func() {
		stats, err := p.space("c").Ping(pinging, p.cluster.addr(late.Name, "4"), 10*time.Millisecond)
		// A busy machine loses some by itself; who is cut off loses all until the last host has joined.
		if p.t.Logf("ping every 10 ms what is in no backup: %s", stats); stats.Gap > time.Second || stats.Sent < 20 { // a restore takes half a second and more
			err = errors.Join(err, fmt.Errorf("ping what is in no backup: %s", stats))
		}
		pinged <- err
	}()
	if err := p.restore(p, ctx, backup, try); err != nil {
		return err
	}
	stop()
	return <-pinged
}

// restoreAndLaunch restores the backup into netmaster's directory and starts it there.
func (p *person) restoreAndLaunch(ctx context.Context, backup string) (*testcluster.Process, error) {
	if out, err := p.Master.Command(ctx, filepath.Join(p.Config().BinDir, "netmaster"), "--restore", backup, "--keep-tokens", "--data-dir", p.data).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("restore: %w: %s", err, out)
	}
	return p.Masters.LaunchMaster([]string{"--secure"})
}

// inPlace has the backup be restored in the directory that there is.
func (p *person) inPlace(ctx context.Context, backup string, try int) error {
	if err := p.Process("netmaster").Kill(); err != nil {
		return err
	}
	master, err := p.restoreAndLaunch(ctx, backup)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	began := time.Now()
	for _, h := range p.Hosts() {
		if err := h.WaitAgent(ctx, h.Agent()); err != nil {
			return fmt.Errorf("%w; %s", err, master.Tail(5))
		}
		p.t.Logf("%s can attach %v after the restore", h.Name, time.Since(began).Round(time.Millisecond))
		if err := p.works(ctx, fmt.Sprint("anew", h.Name, try), h); err != nil {
			return err
		}
	}
	if err := p.scrapes(ctx); err != nil {
		return err
	}
	return p.hasAll(ctx)
}

// scrapes has a host show its metrics to a token that may view, and to no other.
func (p *person) scrapes(ctx context.Context) error {
	for token, want := range map[string]string{p.token: "contiv_netplugin_build_info", p.token + "x": "the token"} {
		out, err := p.Hosts()[0].Run(ctx, "curl", "-s", "--cacert", filepath.Join(p.home, "ca.crt"), "-H", "Authorization: Bearer "+token, "https://127.0.0.1:9006/metrics")
		if err != nil || !strings.Contains(out, want) {
			return fmt.Errorf("metrics by a token: %w %.300s, want %q", err, out, want)
		}
	}
	return nil
}

// hasAll reports whether the store has the endpoints of all containers.
func (p *person) hasAll(ctx context.Context) error {
	out, err := p.runs(ctx, "", "endpoint", "ls", "-q")
	if n := len(strings.Fields(out)); err != nil || n != len(p.Containers()) {
		return fmt.Errorf("%d of %d endpoints are there: %w %s", n, len(p.Containers()), err, out)
	}
	return nil
}

// again has the directory be lost, and made of the backup.
func (p *person) again(ctx context.Context, backup string, try int) error {
	if err := p.Process("netmaster").Kill(); err != nil {
		return err
	}
	if err := os.Rename(p.data, fmt.Sprint(p.data, ".lost", try)); err != nil {
		return err
	}
	master, err := p.restoreAndLaunch(ctx, backup)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, "netmaster to have a new authority", func(context.Context) error {
		_, err := os.Stat(filepath.Join(p.data, "join", "clients", "issued", "netmaster", "ca.crt"))
		return err
	}); err != nil {
		return err
	}
	if _, err := p.runs(ctx, "", "tenant", "ls"); err == nil {
		return errors.New("netctl trusts another authority than it was told")
	}
	if err := testcluster.Until(ctx, "bert to be let in", p.login); err != nil {
		return fmt.Errorf("%w; %s", err, master.Tail(5))
	}
	if err := testcluster.Until(ctx, "the status to say that hosts trust another authority", func(ctx context.Context) error {
		if out, err := p.runs(ctx, "", "status"); err == nil || !strings.Contains(err.Error(), "clients-trust") {
			return fmt.Errorf("it says %w %s", err, out)
		}
		return nil
	}); err != nil {
		return err
	}
	// The state of hosts that have not joined again, one of which was restarted.
	h2, store := p.Hosts()[1], strings.ReplaceAll(p.Store.StoreURL(), "http://", "https://")
	if err := h2.KillAgent(); err != nil {
		return err
	}
	if _, err := h2.LaunchAgentWith([]string{"--etcd-endpoints", store}); err != nil {
		return err
	}
	for _, h := range p.Hosts() {
		if err := testcluster.Until(ctx, h.Name+" to say that it has to join anew", func(ctx context.Context) error {
			if err := h.Status(ctx); err == nil || !strings.Contains(err.Error(), "netctl cluster token") {
				return fmt.Errorf("it says %w; the end of its log: %s", err, h.Agent().Tail(10))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	// The hosts start without waiting for each other: each waits for the others to restore
	// what the backup lacks.
	began := time.Now()
	for _, h := range p.Hosts() {
		token, err := p.runs(ctx, "", "cluster", "token", "-q", "--host", h.Name)
		if err != nil {
			return err
		}
		if err := h.Agent().Stop(20 * time.Second); err != nil {
			return err
		}
		if _, err := h.LaunchAgentWith([]string{"--etcd-endpoints", store, "--join", net.JoinHostPort(p.addr, "9005"), "--token", token}); err != nil {
			return err
		}
	}
	p.t.Logf("all hosts are started anew within %v", time.Since(began).Round(time.Millisecond))
	for _, h := range p.Hosts() {
		if err := h.WaitAgent(ctx, h.Agent()); err != nil {
			return err
		}
		p.t.Logf("%s can attach %v after the first was started", h.Name, time.Since(began).Round(time.Millisecond))
	}
	for _, h := range p.Hosts() {
		if err := p.works(ctx, fmt.Sprint("anew", h.Name, try), h); err != nil {
			return err
		}
	}
	return p.hasAll(ctx)
}
