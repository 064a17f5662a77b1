package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestAttachedContainersAreSetUpAndReleased attaches two containers, checks what they got, and detaches.
func TestAttachedContainersAreSetUpAndReleased(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	res, err := b.client().Attach(t.Context(), request("c1", s))
	if err != nil {
		t.Fatal(err)
	}
	want := attach.Result{
		Endpoint: "blue:net1:cni:n-host1:c1:eth0", IfName: "eth0", Netns: s.path,
		MAC: model.MAC{2, 2, 10, 1, 1, 1}, MTU: 1450,
		Addresses: []attach.Address{
			{Prefix: netip.MustParsePrefix("10.1.1.1/24"), Gateway: netip.MustParseAddr("10.1.1.254")},
			{Prefix: netip.MustParsePrefix("fd00:1::a01:101/64")},
		},
		Routes: []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.1.1.254")}},
	}
	if diff := cmp.Diff(want, res, cmpopts.IgnoreFields(attach.Result{}, "HostIf", "HostMAC", "Revision", "PolicyRevision"),
		cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if err := b.client().Check(t.Context(), attach.CheckRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}, Netns: s.path}); err != nil {
		t.Errorf("Check: %v", err)
	}
	again, err := b.client().Attach(t.Context(), request("c1", s))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(res, again, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("second Attach (-first +second):\n%s", diff)
	}
	for range 2 {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
			t.Fatal(err)
		}
	}
	b.nothingLeft()
}

// TestParallelAttachesSucceed attaches and detaches 24 containers at once.
func TestParallelAttachesSucceed(t *testing.T) {
	b := newBed(t)
	b.ready()
	var wg sync.WaitGroup
	for i := range 24 {
		s := newSandbox(t)
		wg.Go(func() {
			if _, err := b.client().Attach(t.Context(), request(fmt.Sprintf("p%d", i), s)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(b.endpoints()); n != 24 {
		t.Errorf("%d endpoints, want 24", n)
	}
	for i := range 24 {
		wg.Go(func() {
			err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: fmt.Sprintf("p%d", i), IfName: "eth0"}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.nothingLeft()
}

// TestRestartKeepsAttachments keeps attachments over an orderly restart of the agent, without a
// change in the data plane.
func TestRestartKeepsAttachments(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	if _, err := b.client().Attach(t.Context(), request("c1", s)); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.ready()
	if o, _ := b.agent.reached.Get(); o.Report.Changes != 0 {
		t.Errorf("the first pass after the restart changed %d objects, want 0", o.Report.Changes)
	}
	if err := b.client().Check(t.Context(), attach.CheckRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}, Netns: s.path}); err != nil {
		t.Errorf("Check after restart: %v", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestRefusedAttachLeavesNothing asks for what must be refused, with its kind, and leaves
// nothing behind.
func TestRefusedAttachLeavesNothing(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	tests := []struct {
		name   string
		change func(*attach.Request)
		kind   error
	}{
		{"unknown network", func(r *attach.Request) { r.Network = "nowhere" }, model.ErrNotFound},
		{"unknown tenant", func(r *attach.Request) { r.Tenant = "nobody" }, model.ErrNotFound},
		{"tenant with a slash", func(r *attach.Request) { r.Tenant = "a/b" }, model.ErrInvalid},
		{"no netns", func(r *attach.Request) { r.Netns = "" }, model.ErrInvalid},
		{"netns does not exist", func(r *attach.Request) { r.Netns = b.dir + "/none" }, model.ErrNotFound},
		{"netns is a file", func(r *attach.Request) { r.Netns = "/etc/passwd" }, model.ErrInvalid},
		{"interface name of a path", func(r *attach.Request) { r.IfName = "../x" }, model.ErrInvalid},
		{"interface name of two words", func(r *attach.Request) { r.IfName = "eth 0" }, model.ErrInvalid},
		{"interface name for several", func(r *attach.Request) { r.IfName = "eth%d" }, model.ErrInvalid},
		{"interface name of a directory", func(r *attach.Request) { r.IfName = ".." }, model.ErrInvalid},
		{"interface name too long", func(r *attach.Request) { r.IfName = "a123456789012345" }, model.ErrInvalid},
		{"interface exists", func(r *attach.Request) { r.IfName = "lo" }, model.ErrExists},
		{"MTU beyond the underlay", func(r *attach.Request) { r.MTU = 9000 }, model.ErrInvalid},
		{"two IPv4 addresses", func(r *attach.Request) {
			r.Addresses = []netip.Addr{netip.MustParseAddr("10.1.1.5"), netip.MustParseAddr("10.1.1.6")}
		}, model.ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := request("c1", s)
			tt.change(&r)
			_, err := b.client().Attach(t.Context(), r)
			if !errors.Is(err, tt.kind) {
				t.Errorf("error %v is not of kind %v", err, tt.kind)
			}
			b.nothingLeft()
		})
	}
}

// TestGroupDecidesTheNetwork: without a network the group's decides, before the tenant's
// default.
func TestGroupDecidesTheNetwork(t *testing.T) {
	b := newBed(t)
	b.network("blue", "net5", 5)
	b.put(func(tx store.Tx) error {
		return tables.Groups.Put(tx, model.Group{
			Key: model.GroupKey{Tenant: "blue", Name: "web"}, Network: "net5", ID: model.IdentityFirst,
		})
	})
	b.ready()
	r := request("c1", newSandbox(t))
	r.Group = "web"
	res, err := b.client().Attach(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if want := "blue:net5:cni:n-host1:c1:eth0"; res.Endpoint != want || res.Group != "web" {
		t.Errorf("endpoint %s in group %q, want %s in web", res.Endpoint, res.Group, want)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestRequestedAddressIsGiven gives a container the address that it asks for, and
// refuses one that is taken.
func TestRequestedAddressIsGiven(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	r.Addresses = []netip.Addr{netip.MustParseAddr("10.1.1.77")}
	res, err := b.client().Attach(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Addresses[0].Prefix.String(); got != "10.1.1.77/24" {
		t.Errorf("address %s, want 10.1.1.77/24", got)
	}
	r2 := request("c2", newSandbox(t))
	r2.Addresses = r.Addresses
	if _, err := b.client().Attach(t.Context(), r2); !errors.Is(err, model.ErrConflict) {
		t.Errorf("taken address: %v, want a conflict", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestDetachWorksWithoutNetmaster: with netmaster gone Attach fails clearly, Detach works, and
// what is owed is released when it is back.
func TestDetachWorksWithoutNetmaster(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.master.gone.Store(true)
	if err := b.client().Ready(t.Context()); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("Ready: %v, want unavailable", err)
	}
	if _, err := b.client().Attach(t.Context(), request("c2", newSandbox(t))); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("Attach: %v, want unavailable", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Errorf("Detach: %v", err)
	}
	b.noVeths()
	if n := len(b.endpoints()); n != 1 {
		t.Errorf("%d endpoints, want the one that is owed", n)
	}
	b.restart() // what is owed outlives the agent
	b.master.gone.Store(false)
	b.nothingLeft()
}

// TestDetachWorksWithoutTheStore: with the store away the data plane stays, Attach fails
// clearly, Detach works; when it is back Attach works.
func TestDetachWorksWithoutTheStore(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.agentS.Unavailable(true)
	b.agentS.DropWatches()
	b.eventually("stale", func() error {
		if b.client().Ready(t.Context()) == nil {
			return errors.New("the agent still says it is ready")
		}
		return nil
	})
	if _, err := b.client().Attach(t.Context(), request("c2", newSandbox(t))); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("Attach: %v, want unavailable", err)
	}
	if st := b.agent.Observer.State(); len(st.Ports) != 1 || len(st.Pending) != 0 || st.Stale == "" {
		t.Errorf("state with the store away: %+v, want one port and stale", st)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Errorf("Detach: %v", err)
	}
	b.noVeths()
	b.agentS.Unavailable(false)
	b.ready()
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Errorf("Attach after the store is back: %v", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Error(err)
	}
	b.nothingLeft()
}

// TestSpooledDeletionsAreDoneAtStart: a deletion that was spooled while netplugin was down is done at
// its start, and one spooled later is settled by the next Attach.
func TestSpooledDeletionsAreDoneAtStart(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	r := request("c1", s)
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.stop()
	if err := b.spool().Put(attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.nothingLeft()
	b.ready()
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.spool().Put(attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if b.spool().Has(r.Key) {
		t.Error("the spooled deletion is still there and would end the new attachment")
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestCollectReleasesLostContainersOnly releases what the runtime has lost, and nothing of others.
func TestCollectReleasesLostContainersOnly(t *testing.T) {
	b := newBed(t)
	b.ready()
	reqs := map[string]attach.Request{}
	for _, c := range []string{"keep", "lost", "otherconf", "notcni"} {
		r := request(c, newSandbox(t))
		switch c {
		case "otherconf":
			r.Config = "conf2"
		case "notcni":
			r.Source = "docker"
		}
		if _, err := b.client().Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		reqs[c] = r
	}
	err := b.client().Collect(t.Context(), attach.CollectRequest{Config: "conf1", Valid: []attach.Key{reqs["keep"].Key}})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range b.agent.Attachments.Entries() {
		left = append(left, e.Key().Container)
	}
	if diff := cmp.Diff([]string{"keep", "notcni", "otherconf"}, left); diff != "" {
		t.Errorf("attachments left (-want +got):\n%s", diff)
	}
	for _, r := range reqs {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
			t.Fatal(err)
		}
	}
	b.nothingLeft()
}

// TestFailedAttachLeavesNothing makes every step of Attach and Detach fail once: a failed
// Attach leaves nothing behind, and Detach succeeds in the end.
func TestFailedAttachLeavesNothing(t *testing.T) {
	for _, step := range attachment.Steps {
		t.Run(step, func(t *testing.T) {
			var mu sync.Mutex
			armed := false
			b := newBed(t, func(c *Config) {
				c.Hook = func(s string) error {
					mu.Lock()
					defer mu.Unlock()
					if armed && s == step {
						armed = false
						return errors.New("the test says no")
					}
					return nil
				}
			})
			b.ready()
			mu.Lock()
			armed = true
			mu.Unlock()
			r := request("c1", newSandbox(t))
			_, err := b.client().Attach(t.Context(), r)
			mu.Lock()
			hit := !armed
			mu.Unlock()
			if hit != (err != nil) {
				t.Errorf("Attach: %v, the step was met: %v", err, hit)
			}
			if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
				t.Logf("Detach: %v", err)
			}
			b.nothingLeft()
		})
	}
}

// TestSecondAgentIsRefused refuses to share a host's state or socket.
func TestSecondAgentIsRefused(t *testing.T) {
	b := newBed(t)
	b.ready()
	if _, err := New(t.Context(), b.cfg); !errors.Is(err, model.ErrConflict) {
		t.Errorf("same state directory: %v, want a conflict", err)
	}
	other := b.cfg
	other.StateDir = b.dir + "/other"
	if _, err := New(t.Context(), other); !errors.Is(err, model.ErrConflict) {
		t.Errorf("same socket: %v, want a conflict", err)
	}
	if err := os.WriteFile(b.dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other.Socket = b.dir + "/file"
	if _, err := New(t.Context(), other); !errors.Is(err, model.ErrConflict) {
		t.Errorf("socket path is a file: %v, want a conflict", err)
	}
}

// TestHostWritesRecordAndStatus writes the host's record and status, throttled.
func TestHostWritesRecordAndStatus(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.eventually("one port in the host's status", func() error {
		kv, err := b.st.Get(t.Context(), tables.HostStatuses.Key(testHost))
		if err != nil {
			return err
		}
		row, err := tables.HostStatuses.Decode(kv)
		if err == nil && row.Value.Ports != 1 {
			err = fmt.Errorf("status %+v", row.Value)
		}
		return err
	})
	b.eventually("the host's record", func() error {
		kv, err := b.st.Get(t.Context(), tables.Hosts.Key(testHost))
		if err == nil && !kv.Exists() {
			err = errors.New("there is none")
		}
		return err
	})
	b.eventually("netplugin.vtep is registered", func() error {
		list, err := cluster.Services(t.Context(), b.st, "netplugin.vtep")
		if err == nil && (len(list) != 1 || list[0].Port != 4789 || list[0].HostAddr != "10.9.0.1") {
			err = fmt.Errorf("services %+v", list)
		}
		return err
	})
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
	b.stop()
	kv, err := b.st.Get(t.Context(), tables.Hosts.Key(testHost))
	if err != nil || !kv.Exists() {
		t.Errorf("the host's record must outlive the agent: %+v, %v", kv, err)
	}
}

// TestTenantIsMirroredAWhileLonger stops mirroring a tenant some time after its last endpoint.
func TestTenantIsMirroredAWhileLonger(t *testing.T) {
	b := newBed(t, func(c *Config) { c.TenantLinger = 100 * time.Millisecond })
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.agent.Observer.State().Tenants["blue"]; !ok {
		t.Error("tenant blue is not mirrored with an attachment")
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.eventually("tenant blue leaves", func() error {
		if _, ok := b.agent.Observer.State().Tenants["blue"]; ok {
			return errors.New("it is still mirrored")
		}
		return nil
	})
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}
