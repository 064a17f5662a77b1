//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// learnsWithin is how long a host may go without news when its netmaster ends or hangs, and
// asking whether a connection passes may take.
const learnsWithin = 6*time.Second + 700*time.Millisecond

// TestHostsOutliveNetmasters: in a cluster with TLS, where hosts learn from netmasters only, one
// that hangs, dies or is replaced costs a host at most 6 s of news, and no packet. A host that
// starts while there is none keeps its containers.
func TestHostsOutliveNetmasters(t *testing.T) {
	shared(t)
	on(t, 1, both, func(t *testing.T, driver string) {
		c := pairUp(t, driver, "learn", func(cfg *testcluster.Config) { cfg.TLS, cfg.Replicas, cfg.Consul = testcluster.TLSOwn, 2, "" })
		pinging, stop := context.WithCancel(t.Context())
		defer stop()
		stats := map[string]*testcluster.PingStats{"s": {}, "near": {}}
		var pings errgroup.Group
		for name, to := range stats {
			pings.Go(func() (err error) {
				*to, err = c.space("c").Ping(pinging, c.addr(name, "4"), 10*time.Millisecond)
				return err
			})
		}
		l := &learning{cluster: c}
		for n, name := range []string{"netmaster", "netmaster2"} {
			if err := errors.Join(l.hangs(n, name), l.dies(n, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.noneIsThere(); err != nil {
			t.Error(err)
		}
		stop()
		if err := pings.Wait(); err != nil {
			t.Error(err)
		}
		for name, s := range stats {
			if t.Logf("ping every 10 ms to %s: %s", name, s); s.Lost() > 0 {
				t.Errorf("%d packets to %s are lost, for %v", s.Lost(), name, s.Gap)
			}
		}
	})
}

// learning changes a policy and watches when hosts have it.
type learning struct {
	*cluster
	denies bool
}

// change has netmaster n change the policy, and waits until both hosts have that.
func (l *learning) change(n int, when string) error {
	args := []string{"policy", "rule-add", "-t", "blue", "-d", "in", "-p", "20", "-l", "tcp", "-P", "80", "-j", "deny", "p", "later"}
	want := testcluster.Denied
	if l.denies {
		args, want = []string{"policy", "rule-rm", "-t", "blue", "p", "later"}, testcluster.OK
	}
	l.denies = !l.denies
	begin := time.Now()
	if out, err := l.Masters.NetctlAt(l.t.Context(), strings.Split(l.Masters.MasterURLs(), ",")[n], args...); err != nil {
		return fmt.Errorf("%s: %w: %s", when, err, out)
	}
	for _, line := range []string{"c s tcp/80", "c near tcp/80"} {
		l.until(line+" "+when, func(context.Context) error {
			if a := l.ask(line, 300*time.Millisecond); a.Err != nil || a.Verdict != want {
				return fmt.Errorf("it is %s", a)
			}
			return nil
		})
	}
	took := time.Since(begin)
	l.t.Logf("%s: both hosts have a change within %v", when, took.Round(time.Millisecond))
	if took > learnsWithin {
		return fmt.Errorf("%s: hosts have a change only after %v", when, took)
	}
	return nil
}

func (l *learning) hangs(n int, name string) error {
	p := l.Process(name)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := l.change(1-n, name+" hangs")
	return errors.Join(err, p.Signal(syscall.SIGCONT), l.change(1-n, name+" goes on"))
}

func (l *learning) dies(n int, name string) error {
	if err := l.Process(name).Kill(); err != nil {
		return err
	}
	err := l.change(1-n, name+" is dead")
	return errors.Join(err, l.Masters.StartReplica(l.t.Context(), n+1), l.change(n, name+" is replaced"))
}

// noneIsThere ends all netmasters and starts a host's netplugin.
func (l *learning) noneIsThere() error {
	for _, name := range []string{"netmaster", "netmaster2"} {
		if err := l.Process(name).Kill(); err != nil {
			return err
		}
	}
	h := l.host("h2")
	if err := h.RelaunchAgent(); err != nil {
		return err
	}
	l.until("h2 to forward by what it has on its disk", func(_ context.Context) error {
		if !h.Agent().Alive() {
			return fmt.Errorf("netplugin has ended: %s", h.Agent().Tail(3))
		}
		if log := h.Agent().Tail(200); !strings.Contains(log, "netmaster") {
			return errors.New(log)
		}
		return nil
	})
	for range 3 {
		l.wants("c s tcp/80", testcluster.OK)
	}
	return errors.Join(l.Masters.StartReplica(l.t.Context(), 1), l.change(0, "a netmaster is there again"))
}
