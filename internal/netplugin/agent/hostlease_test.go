package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// newcomer runs another agent on the bed's store, as a second machine with its
// own state directory, until it ends or the function until says so.
func (b *bed) newcomer(change func(*Config), until func(*Agent) bool) error {
	b.t.Helper()
	cfg := b.cfg
	dir := shortDir(b.t)
	cfg.StateDir, cfg.Socket = filepath.Join(dir, "state"), filepath.Join(dir, "cni.sock")
	cfg.Control, cfg.VTEP = netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.0.2")
	cfg.LeasePatience = time.Second
	cfg.Store, cfg.Driver = b.st.Client(), reference.New()
	change(&cfg)
	a, err := New(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 40*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if until != nil && until(a) {
				cancel()
				return <-done
			}
		}
	}
}

func (b *bed) hostRecord() model.Host {
	b.t.Helper()
	kv, err := b.st.Get(b.t.Context(), tables.Hosts.Key(testHost))
	if err != nil {
		b.t.Fatal(err)
	}
	row, err := tables.Hosts.Decode(kv)
	if err != nil {
		b.t.Fatal(err)
	}
	return row.Value
}

// copyState copies a state directory's files that say who it is, as a cloned
// machine has them.
func copyState(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// countingDriver counts the desired states that it gets.
type countingDriver struct {
	driver.Driver
	applied atomic.Int32
}

func (d *countingDriver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	d.applied.Add(1)
	return d.Driver.Apply(ctx, want)
}

// TestNameOfAnAliveHostIsRefused: a second installation of a living host's name, a copy of its
// machine, and one with its tunnel address stop with a sentence that names the
// living one; the living one's endpoints, record and ports stay, and what the other
// machine's data plane holds.
func TestNameOfAnAliveHostIsRefused(t *testing.T) {
	b := newBed(t)
	b.ready()
	if _, err := b.client().Attach(t.Context(), request("c1", newSandbox(t))); err != nil {
		t.Fatal(err)
	}
	before := b.endpoints()
	record := b.hostRecord()
	if record.Installation == "" {
		t.Errorf("host record %+v has no installation", record)
	}
	own := b.cfg.StateDir
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"another installation", func(*Config) {}, []string{`host name "n-host1" is in use`, "10.9.0.1", "since 20", "--host"}},
		{"told to take it", func(c *Config) { c.TakeHost = true }, []string{"is in use", "10.9.0.1"}},
		{"a cloned machine", func(c *Config) { copyState(t, own, c.StateDir) }, []string{"is alive at 10.9.0.1", "copy of the other", "--host"}},
		{"the same tunnel", func(c *Config) { c.Host, c.VTEP = "n-host2", b.cfg.VTEP }, []string{`tunnel address 10.9.0.1 belongs to host "n-host1"`, "--vtep-ip"}},
	} {
		d := &countingDriver{Driver: reference.New()}
		err := b.newcomer(func(c *Config) { c.Driver = d; tt.change(c) }, nil)
		// A copy cannot know that it is one, and a machine that is one has no containers.
		if n := d.applied.Load(); n != 0 && tt.name != "a cloned machine" {
			t.Errorf("%s: its machine was given the other host's desired state, %d times", tt.name, n)
		}
		if !errors.Is(err, model.ErrConflict) {
			t.Errorf("%s: Run ended with %v, want a conflict", tt.name, err)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", tt.name, err, w)
			}
		}
	}
	if diff := cmp.Diff(before, b.endpoints(), cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); diff != "" {
		t.Errorf("endpoints have changed:\n%s", diff)
	}
	if now := b.hostRecord(); now != record {
		t.Errorf("host record %+v has become %+v", record, now)
	}
	if err := b.client().Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Error(err)
	}
}

// TestNameOfTheDead: a name whose installation does not live is taken over at
// once on the same machine, as after the state directory was lost, else only
// when told to; then the orphans are released.
func TestNameOfTheDead(t *testing.T) {
	b := newBed(t)
	b.ready()
	b.stop()
	nk := model.NetworkKey{Tenant: "blue", Name: "net1"}
	ip := netip.MustParseAddr("10.1.1.200")
	ep := model.Endpoint{
		Key: model.EndpointKey{Network: nk, ID: "cni:n-host1:lost:eth0"}, Host: testHost, IPv4: ip,
		MAC: model.EndpointMAC(nk, ip, netip.Addr{}), Identity: model.IdentityFirst,
	}
	b.put(func(tx store.Tx) error { return tables.Endpoints.Create(tx, ep) })
	err := b.newcomer(func(*Config) {}, nil)
	if !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "--take-host") || !strings.Contains(err.Error(), "10.9.0.1") {
		t.Errorf("without being told: %v", err)
	}
	if eps := b.endpoints(); len(eps) != 1 {
		t.Fatalf("the dead host's endpoints: %+v", eps)
	}
	record := b.hostRecord()
	same := func(c *Config) { c.Control, c.VTEP = b.cfg.Control, b.cfg.VTEP }
	if err := b.newcomer(same, func(a *Agent) bool { return a.checkOwnsHost() == nil }); err != nil {
		t.Errorf("on the same machine: %v", err)
	}
	if now := b.hostRecord(); now.Installation == record.Installation || now.VTEP != record.VTEP {
		t.Errorf("host record %+v has become %+v", record, now)
	}
	gone := func(*Agent) bool { return len(b.endpoints()) == 0 }
	if err := b.newcomer(func(c *Config) { c.TakeHost = true }, gone); err != nil {
		t.Errorf("told to: %v", err)
	}
	if now := b.hostRecord(); now.VTEP != netip.MustParseAddr("10.9.0.2") {
		t.Errorf("host record %+v", now)
	}
	b.cfg.TakeHost = true // for the bed's own end
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
}

// TestEndingAgentReleasesItsName: an agent that ends while its report is on its way releases the name after
// it, so the next one gets it at once.
func TestEndingAgentReleasesItsName(t *testing.T) {
	b := newBed(t)
	b.ready()
	came, ended, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.master.mu.Lock()
	b.master.around = func(leaving bool) {
		if leaving {
			close(left)
			return
		}
		once.Do(func() {
			close(came)
			<-ended
			select {
			case <-left:
			case <-time.After(leaveTimeout / 4):
			}
		})
	}
	b.master.mu.Unlock()
	b.agent.registration.reannounce.Ring()
	<-came
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.stop()
	}()
	close(ended)
	<-stopped
	b.master.mu.Lock()
	b.master.around = func(bool) {}
	b.master.mu.Unlock()
	if err := b.newcomer(func(c *Config) { c.TakeHost = true }, func(a *Agent) bool { return a.checkOwnsHost() == nil }); err != nil {
		t.Error(err)
	}
	b.cfg.TakeHost = true // for the bed's own end
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
}

// TestNewerFormatStopsTheAgent: where a later agent has been, an earlier one stops with a
// sentence before it has touched anything, until the cluster has forgotten the
// host.
func TestNewerFormatStopsTheAgent(t *testing.T) {
	b := newBed(t)
	b.ready()
	record := b.hostRecord()
	if record.Format != model.HostFormat {
		t.Errorf("host record %+v has not format %d", record, model.HostFormat)
	}
	b.stop()
	later := record
	later.Format++
	b.put(func(tx store.Tx) error { return tables.Hosts.Put(tx, later) })
	same := func(allowed bool) func(*Config) {
		return func(c *Config) {
			copyState(t, b.cfg.StateDir, c.StateDir)
			c.Control, c.VTEP, c.Driver = b.cfg.Control, b.cfg.VTEP, watchfulDriver{reference.New(), func() bool { return allowed }, t}
		}
	}
	err := b.newcomer(same(false), nil)
	if !errors.Is(err, model.ErrConflict) {
		t.Errorf("Run ended with %v, want a conflict", err)
	}
	for _, w := range []string{`host "n-host1"`, "newer netplugin", "format 2", "up to 1", "--uninstall", "netctl host rm n-host1"} {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("%v lacks %q", err, w)
		}
	}
	if now := b.hostRecord(); now != later {
		t.Errorf("host record %+v has become %+v", later, now)
	}
	b.put(func(tx store.Tx) error { tables.Hosts.Delete(tx, testHost); return nil })
	if err := b.newcomer(same(true), func(a *Agent) bool { o, _ := a.reached.Get(); return a.checkOwnsHost() == nil && !o.At.IsZero() }); err != nil {
		t.Errorf("once the host is forgotten: %v", err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
}

// TestHostNameIsLeasedAgainAfterACut: the host's record and its registration are written again
// when somebody removes or overwrites them; and when another installation has
// got the name while this one was cut off, it says so, touches nothing, and has
// its name back when the other ends.
func TestHostNameIsLeasedAgainAfterACut(t *testing.T) {
	b := newBed(t)
	b.ready()
	record := b.hostRecord()
	for _, harm := range []func(tx store.Tx) error{
		func(tx store.Tx) error { tables.Hosts.Delete(tx, testHost); return nil },
		func(tx store.Tx) error {
			return tables.Hosts.Put(tx, model.Host{Name: testHost, VTEP: netip.MustParseAddr("10.9.0.77")})
		},
	} {
		b.put(harm)
		b.eventually("the host record is back", func() error {
			if now := b.hostRecord(); now != record {
				return fmt.Errorf("%+v", now)
			}
			return nil
		})
	}
	other := tables.HostLease{
		Host: testHost, Installation: "somebody", Control: netip.MustParseAddr("10.9.0.9"), VTEP: netip.MustParseAddr("10.9.0.9"), Since: "2026-11-22T00:00:00Z",
	}
	b.agentS.Unavailable(true)
	b.st.ExpireSessions()
	b.put(func(tx store.Tx) error { return tables.HostLeases.Put(tx, other) })
	b.agentS.Unavailable(false)
	b.eventually("the agent says that its name is taken", func() error {
		if err := b.client().Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "is in use") || !strings.Contains(err.Error(), "10.9.0.9") {
			return fmt.Errorf("ready: %w", err)
		}
		if p := b.agent.Observer.State().Problems[observe.AboutName]; !strings.Contains(p, "10.9.0.9") {
			return fmt.Errorf("problem %q", p)
		}
		return nil
	})
	if _, err := b.client().Attach(t.Context(), request("c1", newSandbox(t))); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("ADD under a name that is taken: %v", err)
	}
	b.put(func(tx store.Tx) error { tables.HostLeases.Delete(tx, testHost); return nil })
	b.ready()
	b.eventually("netplugin.vtep is registered again", func() error {
		list, err := cluster.Services(t.Context(), b.st, "netplugin.vtep")
		if err == nil && (len(list) != 1 || list[0].Installation != record.Installation) {
			err = fmt.Errorf("%+v", list)
		}
		return err
	})
	b.eventually("the problem has gone", func() error {
		if p, there := b.agent.Observer.State().Problems[observe.AboutName]; there {
			return errors.New(p)
		}
		return nil
	})
}

// needsTunnel fails the test when it is applied without the host's tunnel
// endpoint after it was once applied with it.
type needsTunnel struct {
	driver.Driver
	t   *testing.T
	had atomic.Bool
}

func (d *needsTunnel) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	if !want.VTEP.IsValid() && d.had.Load() {
		d.t.Error("a desired state without the host's tunnel endpoint")
	}
	if want.VTEP.IsValid() {
		d.had.Store(true)
	}
	return d.Driver.Apply(ctx, want)
}

// TestDataPlaneOutlivesAMissingOwnRecord: while the host's own record is not in the store, be it that
// somebody has removed it or that another store is followed, the desired state keeps
// the host's tunnel endpoint.
func TestDataPlaneOutlivesAMissingOwnRecord(t *testing.T) {
	b := newBed(t)
	b.stop()
	d := &needsTunnel{Driver: b.fake.Restart(), t: t}
	b.startWith(d)
	b.ready()
	b.eventually("the host has a tunnel endpoint", func() error {
		if !d.had.Load() {
			return errors.New("it has none")
		}
		return nil
	})
	for range 3 {
		before := b.agent.Observer.State().Passes
		b.put(func(tx store.Tx) error { tables.Hosts.Delete(tx, testHost); return nil })
		b.agent.kick("test")
		b.eventually("the host record is back, and a pass is done", func() error {
			if b.hostRecord().VTEP != b.cfg.VTEP || b.agent.Observer.State().Passes == before {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// TestFirstStateHasTheTunnelEndpoint: an agent that begins on a store that has no record of its host
// gives the data plane its tunnel endpoint from the first desired state on, and says what is missing.
func TestFirstStateHasTheTunnelEndpoint(t *testing.T) {
	b := newBed(t)
	b.ready()
	b.stop()
	b.put(func(tx store.Tx) error { tables.Hosts.Delete(tx, testHost); return nil })
	b.master.deaf.Store(true)
	d := &needsTunnel{Driver: b.fake.Restart(), t: t}
	d.had.Store(true)
	b.startWith(d)
	b.eventually("a pass is done, and it is said that there is no record", func() error {
		if said := b.agent.Observer.State().Problems["host "+testHost]; !strings.Contains(said, "its record is not in the store") {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	b.master.deaf.Store(false)
	b.eventually("it is there, and nothing is said", func() error {
		if said := b.agent.Observer.State().Problems["host "+testHost]; said != "" {
			return errors.New(said)
		}
		return nil
	})
}

// TestInstallationOutlivesTheAgent: who an agent is outlives it; a file that is damaged is set
// aside, and on the same machine the name stays.
func TestInstallationOutlivesTheAgent(t *testing.T) {
	b := newBed(t)
	b.ready()
	id := b.agent.lease.installation.ID
	b.restart()
	b.ready()
	if b.agent.lease.installation.ID != id {
		t.Errorf("installation %s has become %s", id, b.agent.lease.installation.ID)
	}
	b.stop()
	if err := os.WriteFile(filepath.Join(b.cfg.StateDir, installationFile), []byte(`{"version":1,"id":"x`), 0o600); err != nil {
		t.Fatal(err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
	if now := b.hostRecord().Installation; now == id || now != b.agent.lease.installation.ID {
		t.Errorf("after damage the record has installation %q, before it had %q", now, id)
	}
}
