//go:build integration

package slice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// securing is netmaster's side of a cluster that is turned secure.
type securing struct {
	*cluster
	addr   string   // of the first netmaster
	at     string   // address of the netmaster that is asked
	data   string   // its data directory
	tokens []string // by which hosts have joined
}

// netmaster stops the running netmasters and starts them with these flags, one after the
// other, and waits until each is ready.
func (s *securing) netmaster(ctx context.Context, ask func(context.Context, ...string) (string, error), flags ...string) error {
	defer func() { s.at = s.addr }()
	for i, address := range strings.Split(s.Masters.MasterURLs(), ",") {
		master, err := url.Parse(address)
		if err != nil {
			return err
		}
		s.at = master.Hostname()
		if err := s.replica(ctx, i+1, ask, flags); err != nil {
			return err
		}
	}
	return nil
}

// replica does that with the n-th.
func (s *securing) replica(ctx context.Context, n int, ask func(context.Context, ...string) (string, error), flags []string) error {
	if err := s.Process([]string{"netmaster", "netmaster2"}[n-1]).Stop(20 * time.Second); err != nil {
		return err
	}
	p, err := s.Masters.LaunchReplica(n, flags)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return testcluster.Until(ctx, p.Name+" to serve with "+strings.Join(flags, " "), func(ctx context.Context) error {
		if out, err := ask(ctx, "tenant", "ls"); err != nil {
			return fmt.Errorf("%w: %s; %s", err, out, p.Tail(3))
		}
		return nil
	})
}

func (s *securing) run(ctx context.Context, args ...string) (string, error) {
	out, err := s.Master.Command(ctx, filepath.Join(s.Config().BinDir, "netctl"), args...).CombinedOutput()
	return string(out), err
}

// plainly asks without a certificate.
func (s *securing) plainly(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, append([]string{"--netmaster", "http://" + net.JoinHostPort(s.at, "9999")}, args...)...)
}

// anna is an administrator with a certificate.
func (s *securing) anna(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, append([]string{"--netmaster", "https://" + net.JoinHostPort(s.at, "9999"), "--tls-dir", filepath.Join(s.data, "join", "clients", "issued", "anna")}, args...)...)
}

// warns waits until 'netctl cluster members' says something, or does not any more.
func (s *securing) warns(ctx context.Context, part string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return testcluster.Until(ctx, "netctl to say "+part, func(ctx context.Context) error {
		out, err := s.anna(ctx, "cluster", "members")
		if err == nil && !strings.Contains(out, part) {
			err = errors.New(out)
		}
		return err
	})
}

// TestTurningSecureLosesNothing: a cluster that began without --secure is turned secure by the page's
// steps while containers talk. No packet is lost, hosts without certificate work until they
// join, and at the end clients without TLS are refused and all hosts work. Then its
// authorities are renewed in the same way, bugtool packs it without its secrets, the doctor
// reports hosts' certificates, and it is rolled back to plain.
func TestTurningSecureLosesNothing(t *testing.T) {
	shared(t)
	on(t, 1, both, func(t *testing.T, driver string) {
		s := secured(pairUp(t, driver, "sec", func(cfg *testcluster.Config) { cfg.Embedded, cfg.Consul = true, "" }))
		s.losesNothingBy(s.turn, s.renew)
		if t.Failed() {
			return
		}
		if err := s.packs(t.Context(), s.tokens); err != nil {
			t.Error(err)
		}
		if err := s.takenOver(t.Context()); err != nil {
			t.Error(err)
		}
		out, err := s.plainly(t.Context(), "tenant", "ls")
		if err == nil {
			t.Errorf("who asks plainly is answered: %s", out)
		}
		s.losesNothingBy(s.back)
	})
}

// TestTwoNetmastersTurnSecure: so it is with two netmasters that keep the store together, of which each
// restart leaves one that waits for the other.
func TestTwoNetmastersTurnSecure(t *testing.T) {
	shared(t)
	if !conformance.Full() {
		t.Skip("it takes minutes; TestTurningSecureLosesNothing has one netmaster")
	}
	on(t, 1, both, func(t *testing.T, driver string) {
		s := secured(pairUp(t, driver, "sectwo", func(cfg *testcluster.Config) { cfg.Embedded, cfg.Consul, cfg.Replicas = true, "", 2 }))
		s.until("both netmasters to have the authority", func(context.Context) error {
			_, err := os.Stat(filepath.Join(s.data+"2", "join", "clients", "authority.pem"))
			return err
		})
		s.losesNothingBy(s.turn, s.back)
	})
}

// losesNothingBy does what can be done once each under traffic, which may lose what it loses
// without it.
func (s *securing) losesNothingBy(steps ...func(context.Context) error) {
	s.t.Helper()
	series := func(do func(context.Context, *stream) error) map[string]testcluster.PingStats {
		_, pings := s.traffic(func(ctx context.Context, s *stream) error { return errors.Join(do(ctx, s), s.more(ctx, 4<<20)) })
		return pings
	}
	for _, do := range steps {
		began := time.Now()
		pings := series(func(ctx context.Context, _ *stream) error { return do(ctx) })
		bytes := int(time.Since(began)/pace) * chunk // of the stream in that time
		var without map[string]testcluster.PingStats
		for name, p := range pings {
			if p.Lost() > 0 && without == nil { // a busy machine loses packets by itself
				without = series(func(ctx context.Context, s *stream) error { return s.more(ctx, bytes) })
			}
			if w := without[name]; p.Sent < 100 || p.Lost() > 2*w.Lost()*p.Sent/max(1, w.Sent) {
				s.t.Errorf("ping %s: %s, and without the change %s", name, p, w)
			}
		}
		if s.t.Failed() {
			return
		}
	}
}

// secured is a cluster that is to be turned secure.
func secured(c *cluster) *securing {
	c.t.Helper()
	master, err := url.Parse(c.Masters.MasterURL())
	if err != nil {
		c.t.Fatal(err)
	}
	return &securing{cluster: c, addr: master.Hostname(), at: master.Hostname(), data: filepath.Join(c.Config().Dir, "master", "data")}
}

func (s *securing) turn(ctx context.Context) error {
	if err := s.netmaster(ctx, s.plainly, "--secure", "--accept-plain"); err != nil {
		return err
	}
	if out, err := s.run(ctx, "pki", "issue", filepath.Join(s.data, "join", "clients"), "anna", "--role", "cluster-admin"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if out, err := s.Masters.Netctl(ctx, "cluster", "token", "--host", "h1"); err == nil || !strings.Contains(out, "tokens are made by TLS only") {
		return fmt.Errorf("a token that is asked for plainly: %w %s", err, out)
	}
	// All hosts are plain yet, and work.
	var names []string
	for i, h := range s.Hosts() {
		names = append(names, h.Name)
		if err := s.works(ctx, fmt.Sprint("plain", i), h); err != nil {
			return err
		}
	}
	if err := s.warns(ctx, "have no certificate: "+strings.Join(names, ", ")+";"); err != nil {
		return err
	}
	for i, h := range s.Hosts() {
		token, err := s.anna(ctx, "cluster", "token", "-q", "--host", h.Name)
		if err != nil {
			return fmt.Errorf("%w: %s", err, token)
		}
		if err := h.Agent().Stop(20 * time.Second); err != nil {
			return err
		}
		s.tokens = append(s.tokens, strings.TrimSpace(token))
		if err := s.joins(ctx, h, "--join", net.JoinHostPort(s.addr, "9005"), "--token", strings.TrimSpace(token)); err != nil {
			return err
		}
		if err := s.works(ctx, fmt.Sprint("joined", i), h); err != nil {
			return err
		}
	}
	if err := s.warns(ctx, "all hosts have certificates: start all netmasters without it"); err != nil {
		return err
	}
	if err := s.netmaster(ctx, s.anna, "--secure"); err != nil {
		return err
	}
	for i, h := range s.Hosts() {
		if err := s.works(ctx, fmt.Sprint("secure", i), h); err != nil {
			return err
		}
	}
	h := s.Hosts()[0]
	if err := h.KillAgent(); err != nil {
		return err
	}
	if err := s.joins(ctx, h); err != nil { // with what it has got
		return err
	}
	return s.works(ctx, "again", h)
}

// back makes the cluster plain again, by the page's steps.
func (s *securing) back(ctx context.Context) error {
	if err := s.netmaster(ctx, s.anna, "--secure", "--accept-plain"); err != nil {
		return err
	}
	for i, h := range s.Hosts() {
		if err := s.leaves(ctx, h); err != nil {
			return err
		}
		if err := s.works(ctx, fmt.Sprint("back", i), h); err != nil {
			return err
		}
	}
	if err := s.netmaster(ctx, s.plainly); err != nil {
		return err
	}
	for i, h := range s.Hosts() {
		if err := s.works(ctx, fmt.Sprint("plainly", i), h); err != nil {
			return err
		}
	}
	return nil
}

// leaves has a host go back to plain connections, which it does not by being told alone.
func (s *securing) leaves(ctx context.Context, h *testcluster.Host) error {
	if err := h.Agent().Stop(20 * time.Second); err != nil {
		return err
	}
	p, err := h.LaunchAgent()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	kept := filepath.Join(h.StateDir(), "tls")
	if err := p.Wait(limited); err != nil || !strings.Contains(p.Tail(3), "remove "+kept) {
		return fmt.Errorf("netplugin that is told a plain store and has a certificate: %w: %s", err, p.Tail(3))
	}
	if err := os.RemoveAll(kept); err != nil {
		return err
	}
	return h.StartAgent(ctx)
}

// renew renews the authorities, and has one host get a certificate of the next one, while the
// other one has those of before; then netmaster is restarted.
func (s *securing) renew(ctx context.Context) error {
	if out, err := s.anna(ctx, "cluster", "renew-authorities"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	h1, h2 := s.Hosts()[0], s.Hosts()[1]
	trusted := func(h *testcluster.Host) (n int, err error) {
		text, err := os.ReadFile(filepath.Join(h.StateDir(), "tls", pki.BundleFile))
		return bytes.Count(text, []byte("BEGIN CERTIFICATE")), err
	}
	for i, h := range s.Hosts() {
		if err := s.works(ctx, fmt.Sprint("renewed", i), h); err != nil {
			return err
		}
	}
	if err := h1.KillAgent(); err != nil {
		return err
	}
	if err := s.joins(ctx, h1); err != nil {
		return err
	}
	if err := testcluster.Until(ctx, "h1 to trust both", func(context.Context) error {
		if n, err := trusted(h1); err != nil || n != 2 {
			return fmt.Errorf("it trusts %d: %w", n, err)
		}
		return nil
	}); err != nil {
		return err
	}
	if n, err := trusted(h2); err != nil || n != 1 {
		return fmt.Errorf("h2, which asks later, trusts %d: %w", n, err)
	}
	if err := s.netmaster(ctx, s.anna, "--secure"); err != nil {
		return err
	}
	for i, h := range s.Hosts() {
		if err := s.works(ctx, fmt.Sprint("next", i), h); err != nil {
			return err
		}
	}
	if out, err := s.anna(ctx, "cluster", "renew-authorities"); err == nil || !strings.Contains(out, "the former ones are trusted until") {
		return fmt.Errorf("a second renewal: %w: %s", err, out)
	}
	return nil
}

// joins starts a host's netplugin with the store's address as it is by TLS.
func (s *securing) joins(ctx context.Context, h *testcluster.Host, flags ...string) error {
	p, err := h.LaunchAgentWith(append([]string{"--etcd-endpoints", strings.ReplaceAll(s.Store.StoreURLs(), "http://", "https://")}, flags...))
	if err != nil {
		return err
	}
	return h.WaitAgent(ctx, p)
}

// works has a host attach a container that talks to one of another host.
func (s *securing) works(ctx context.Context, name string, h *testcluster.Host) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sp := spec(name, h.Name, "blue/net/clients")
	if err := testcluster.Until(ctx, h.Name+" to attach "+name, func(ctx context.Context) error {
		_, err := s.AddContainer(ctx, sp)
		return err
	}); err != nil {
		return err
	}
	return testcluster.Until(ctx, name+" to reach s", func(ctx context.Context) error {
		a := s.space(name).Probe(ctx, testcluster.Target{Proto: "tcp", Addr: s.cluster.addr("s", "4"), Port: 80}, time.Second)
		if a.Verdict != testcluster.OK {
			return errors.New(a.String())
		}
		return nil
	})
}
