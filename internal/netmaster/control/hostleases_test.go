package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func reportOf(name model.HostName, installation string) HostReport {
	return HostReport{
		Host: model.Host{
			Name: name, Control: netip.MustParseAddr("10.0.0.1"), VTEP: netip.MustParseAddr("10.1.0.1"), Driver: "ebpf", Installation: installation, Format: 1,
		},
		Boot: "b1", Since: "2026-11-22T00:00:00Z", VXLANPort: 4789, Look: true,
		Listening: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:9090")},
	}
}

// storedRows tells what the store has of a host: claim, record, registration, listening.
func storedRows(t *testing.T, st store.Store, name model.HostName) string {
	t.Helper()
	var out []string
	for what, key := range map[string]string{"claim": tables.HostLeases.Key(name), "record": tables.Hosts.Key(name)} {
		if kv, err := st.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		} else if kv.Exists() {
			out = append(out, what)
		}
	}
	for _, service := range []string{cluster.ServiceAgent, cluster.ListenService} {
		list, err := cluster.Services(t.Context(), st, service)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Hostname == string(name) {
				out = append(out, fmt.Sprintf("%s@%s:%d/%d", service, s.HostAddr, s.Port, s.TTL))
			}
		}
	}
	return strings.Join(out, " ")
}

func has(t *testing.T, st store.Store, name model.HostName, want ...string) {
	t.Helper()
	got := storedRows(t, st, name)
	for _, w := range want {
		if !slices.Contains(strings.Fields(got), w) {
			t.Errorf("the store has %q of %s, want %s", got, name, w)
		}
	}
	if n := len(strings.Fields(got)); n != len(want) {
		t.Errorf("the store has %q of %s, want %q", got, name, want)
	}
}

var allOfIt = []string{"claim", "record", "netplugin.vtep@10.1.0.1:4789/10", "contiv.listen@10.0.0.1:9090/10"}

// TestAgentReportsAreStoredUntilItLeaves: what an agent tells is in the store, is written again when it is
// missing, follows changes, and goes when the agent leaves, but for the host's
// record; another installation is refused meanwhile.
func TestAgentReportsAreStoredUntilItLeaves(t *testing.T) {
	st := memory.New()
	c := New(st, Options{})
	ctx := t.Context()
	r := reportOf("h1", "i1")
	if k, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil || !strings.Contains(k.Wrote, "lease") {
		t.Fatalf("KeepHost() = %+v, %v", k, err)
	}
	has(t, st, "h1", allOfIt...)
	if k, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil || k.Wrote != "" {
		t.Errorf("again: %+v, %v", k, err)
	}
	if _, err := st.Update(ctx, func(tx store.Tx) error { tables.Hosts.Delete(tx, "h1"); return nil }); err != nil {
		t.Fatal(err)
	}
	if k, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil || k.Wrote != "host record" {
		t.Errorf("after the record was deleted: %+v, %v", k, err)
	}
	for _, other := range []struct {
		what, says string
		former     bool
		change     func(*HostReport)
	}{
		{"another installation", "is in use", false, func(r *HostReport) { r.Installation = "i2" }},
		{"told to take it", "is in use", false, func(r *HostReport) { r.Installation, r.TakeHost = "i2", true }},
		{"a copy of the machine", "copy of the other", true, func(r *HostReport) { r.Boot = "b2" }},
		{"the same tunnel", "--vtep-ip", false, func(r *HostReport) { r.Name, r.Installation = "h2", "i2" }},
		{"an older agent", "newer netplugin", false, func(r *HostReport) { r.Format = 0 }},
	} {
		o := reportOf("h1", "i1")
		other.change(&o)
		_, err := New(st, Options{}).HostLeases.RenewHost(ctx, Admin(), o)
		taken, ok := errors.AsType[LeaseTakenError](err)
		if !ok || !strings.Contains(taken.Text, other.says) || taken.Previous != other.former {
			t.Errorf("%s: %v, want a refusal that says %q", other.what, err, other.says)
		}
	}
	o := reportOf("h1", "i2")
	o.Look = false // to the netmaster that has kept the other's claim
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), o); !errors.As(err, new(LeaseTakenError)) {
		t.Errorf("a sign of life of another installation: %v", err)
	}
	r.Listening = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:9090")}
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil {
		t.Fatal(err)
	}
	has(t, st, "h1", "claim", "record", "netplugin.vtep@10.1.0.1:4789/10", "contiv.listen@10.0.0.2:9090/10")
	r.VXLANPort = 8472
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil {
		t.Fatal(err)
	}
	has(t, st, "h1", "claim", "record", "netplugin.vtep@10.1.0.1:8472/10", "contiv.listen@10.0.0.2:9090/10")
	r.Version = "v2"
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil {
		t.Fatal(err)
	}
	all, err := cluster.Services(ctx, st, "")
	if err != nil || len(all) != 2 || all[0].Version != "v2" || all[1].Version != "v2" {
		t.Errorf("after an upgrade the registry has %+v, %v", all, err)
	}
	if _, err := c.HostLeases.PutHostStatus(ctx, Admin(), "i2", HostStatus{Host: "nobody"}); !errors.Is(err, model.ErrConflict) {
		t.Errorf("the status of a host that nobody has: %v", err)
	}
	old := reportOf("h1", "i1") // as it was before the port changed
	old.Listening = nil
	if err := c.HostLeases.deleteLease(ctx, Admin(), old.lease()); err != nil {
		t.Error(err)
	}
	has(t, st, "h1", "claim", "record", "netplugin.vtep@10.1.0.1:8472/10", "contiv.listen@10.0.0.2:9090/10")
	if _, err := c.HostLeases.PutHostStatus(ctx, Admin(), "i2", HostStatus{Host: "h1"}); !errors.Is(err, model.ErrConflict) {
		t.Errorf("the status of another installation: %v", err)
	}
	if _, err := c.HostLeases.PutHostStatus(ctx, Admin(), "i1", HostStatus{Host: "h1"}); err != nil {
		t.Error(err)
	}
	if err := c.HostLeases.ReleaseHost(ctx, Admin(), "h1", "i2"); err != nil {
		t.Error(err)
	}
	if got := storedRows(t, st, "h1"); !strings.Contains(got, "claim") {
		t.Errorf("another installation's leaving left %q", got)
	}
	if err := c.HostLeases.ReleaseHost(ctx, Admin(), "h1", "i1"); err != nil {
		t.Fatal(err)
	}
	has(t, st, "h1", "record")
	c.Heartbeats.SetLeaderLost(errors.New("no route"))
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), reportOf("h1", "i1")); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "no route") {
		t.Errorf("a netmaster that does not reach the leader: %v", err)
	}
	c.Heartbeats.SetLeaderLost(nil)
	successor := reportOf("h1", "i3")
	successor.Look = false // this netmaster knows nothing of it yet
	if k, err := c.HostLeases.RenewHost(ctx, Admin(), successor); err != nil || k.Previous != "i1" {
		t.Errorf("a successor on the same machine: %+v, %v", k, err)
	}
}

// TestHostNameGoesToItsInstallation: whom the name of a host that does not live is for.
func TestHostNameGoesToItsInstallation(t *testing.T) {
	at := func(installation, control, vtep string) model.Host {
		return model.Host{Name: "h1", Installation: installation, Control: netip.MustParseAddr(control), VTEP: netip.MustParseAddr(vtep)}
	}
	old := at("i1", "10.0.0.1", "10.1.0.1")
	for name, test := range map[string]struct {
		old, now model.Host
		take     bool
		former   string
		refused  bool
	}{
		"the same, moved":      {old: old, now: at("i1", "10.0.0.2", "10.1.0.2")},
		"the same control":     {old: old, now: at("i2", "10.0.0.1", "10.1.0.2"), former: "i1"},
		"the same tunnel":      {old: old, now: at("i2", "10.0.0.2", "10.1.0.1"), former: "i1"},
		"told to":              {old: old, now: at("i2", "10.0.0.2", "10.1.0.2"), take: true, former: "i1"},
		"of an earlier one":    {old: at("", "10.0.0.1", "10.1.0.1"), now: at("i2", "10.0.0.1", "10.1.0.2"), former: "an earlier version"},
		"elsewhere":            {old: old, now: at("i2", "10.0.0.2", "10.1.0.2"), refused: true},
		"each on its loopback": {old: at("i1", "127.0.0.1", "10.1.0.1"), now: at("i2", "127.0.0.1", "10.1.0.2"), refused: true},
		"without addresses":    {old: model.Host{Name: "h1", Installation: "i1"}, now: model.Host{Name: "h1", Installation: "i2"}, refused: true},
	} {
		former, err := maySucceed(test.old, HostReport{Host: test.now, TakeHost: test.take})
		if former != test.former || errors.As(err, new(LeaseTakenError)) != test.refused {
			t.Errorf("%s: %q, %v", name, former, err)
		}
	}
}

// TestLeaderCountsHeartbeatsFromItsStart: with no netmaster there, nothing about a host expires; a leader
// counts from its own beginning, ends what falls silent, keeps what it or another
// netmaster hears, and touches no claim that an agent keeps itself.
func TestLeaderCountsHeartbeatsFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { _ = waiting.Pause(t.Context(), d) }
		st := memory.New()
		first := New(st, Options{})
		for i, name := range []model.HostName{"h1", "h2", "h3"} {
			r := reportOf(name, "i-"+string(name))
			r.Control, r.VTEP, r.Listening = netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), nil
			if _, err := first.HostLeases.RenewHost(t.Context(), Admin(), r); err != nil {
				t.Fatal(err)
			}
		}
		var term store.Revision
		rev, err := st.Update(t.Context(), func(tx store.Tx) error {
			tx.Put(cluster.LeaderKey, []byte("x"), nil)
			return tables.HostLeases.Put(tx, tables.HostLease{Host: "old", Installation: "i"})
		})
		if err != nil {
			t.Fatal(err)
		}
		term = rev
		pass(time.Hour) // no agent is there
		for _, name := range []model.HostName{"h1", "h2", "h3"} {
			if got := storedRows(t, st, name); !strings.Contains(got, "claim") || !strings.Contains(got, "netplugin.vtep") {
				t.Errorf("after an hour without netmaster the store has %q of %s", got, name)
			}
		}
		leader := New(st, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- leader.HostLeases.ExpireHosts(ctx, Leader{Key: cluster.LeaderKey, Create: term}) }()
		alive := func(want string) {
			t.Helper()
			var there []string
			hosts, err := cluster.RegisteredHosts(t.Context(), st)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []model.HostName{"h1", "h2", "h3", "h4"} {
				if _, ok := hosts[name]; ok {
					there = append(there, string(name))
				}
			}
			if got := strings.Join(there, " "); got != want {
				t.Errorf("alive: %q, want %q", got, want)
			}
		}
		for range 3 {
			pass(cluster.ServiceTTL / 4)
			alive("h1 h2 h3")
			leader.Heartbeats.Heard([]model.HostName{"h2"})
		}
		r := reportOf("h3", "i-h3")
		r.Control, r.VTEP, r.Listening, r.Look = netip.AddrFrom4([4]byte{10, 0, 1, 2}), netip.AddrFrom4([4]byte{10, 1, 1, 2}), nil, false
		if _, err := leader.HostLeases.RenewHost(t.Context(), Admin(), r); err != nil {
			t.Fatal(err)
		}
		pass(cluster.ServiceTTL / 4)
		alive("h2 h3")
		if got := storedRows(t, st, "old"); !strings.Contains(got, "claim") {
			t.Errorf("an agent's own claim: %q", got)
		}
		late := reportOf("h4", "i-h4") // by a netmaster that has not told of it yet
		late.Control, late.VTEP, late.Listening = netip.MustParseAddr("10.0.1.4"), netip.MustParseAddr("10.1.1.4"), nil
		if _, err := first.HostLeases.RenewHost(t.Context(), Admin(), late); err != nil {
			t.Fatal(err)
		}
		pass(2 * expiryInterval)
		alive("h2 h3 h4")
		pass(cluster.ServiceTTL)
		alive("")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if names := leader.Heartbeats.TakeUnreported(); len(names) != 2 {
			t.Errorf("heard of %v", names)
		}
	})
}

// TestUnresponsiveHostIsAwayForAllReaders: of a host that says nothing to the one netmaster of a cluster, which
// may have just begun, all who list hosts say that it is away, though its
// registration still stands; nothing of an agent that netmasters do not keep, nor
// while others may hear it.
func TestUnresponsiveHostIsAwayForAllReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		r := reportOf("h1", "i")
		if _, err := New(c.st, Options{}).HostLeases.RenewHost(t.Context(), Admin(), r); err != nil {
			t.Fatal(err)
		}
		old := agentOf(c, "old", "10.0.0.9")
		w := c.Hosts.NewHostWatch()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.ok(w.Run(ctx)) })
		alive := func(when string, want ...model.HostName) {
			t.Helper()
			synctest.Wait()
			hosts, err := c.Hosts.List(t.Context(), Admin())
			if err != nil || len(hosts) != 2 {
				t.Fatalf("%s: hosts %+v, %v", when, hosts, err)
			}
			seen, _ := w.Seen()
			for _, h := range hosts {
				one, err := c.Hosts.Get(t.Context(), Admin(), h.Name)
				want := slices.Contains(want, h.Name)
				if err != nil || h.Alive != want || one.Alive != want || seen[h.Name] != want || !h.Registered {
					t.Errorf("%s: %s is alive: %v, by itself %v, in metrics %v; registered: %v; want %v; %v", when, h.Name, h.Alive, one.Alive, seen[h.Name], h.Registered, want, err)
				}
			}
		}
		pass(liveness.OverdueAfter - time.Second)
		alive("at first", "h1", "old")
		pass(time.Second)
		alive("after a while", "old")
		if _, _, err := c.Hosts.RemoveHost(t.Context(), Admin(), "h1", true); !errors.Is(err, model.ErrInUse) {
			t.Errorf("removed while its registration stands: %v", err)
		}
		other, err := cluster.Register(t.Context(), c.st, cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: "10.0.0.1", Port: 9999}, func(error) {})
		c.ok(err)
		another, err := cluster.Register(t.Context(), c.st, cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: "10.0.0.2", Port: 9999}, func(error) {})
		c.ok(err)
		alive("with two netmasters", "h1", "old")
		c.ok(another.Close())
		alive("with one again", "old")
		if _, err := c.HostLeases.RenewHost(t.Context(), Admin(), r); err != nil {
			t.Fatal(err)
		}
		alive("when it speaks", "h1", "old")
		for range 4 { // there is no leader yet
			names := c.Heartbeats.TakeUnreported()
			if !slices.Equal(names, []model.HostName{"h1"}) {
				t.Errorf("to be told: %v, want h1", names)
			}
			c.Heartbeats.Requeue(names)
			pass(liveness.OverdueAfter / 4)
		}
		alive("when only the leader could not be told", "old")
		c.ok(errors.Join(other.Close(), old.Close()))
		cancel()
		running.Wait()
		c.stop()
	})
}
