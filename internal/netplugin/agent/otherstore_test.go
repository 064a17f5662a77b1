package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// identify gives the bed's store an identity.
func (b *bed) identify(i store.Incarnation) {
	b.t.Helper()
	b.put(func(tx store.Tx) error { return tables.Incarnations.Put(tx, i) })
}

// far puts an endpoint of another host, which has a record with a mark.
func (b *bed) far(mark string) (model.Host, model.Endpoint) {
	b.t.Helper()
	h := model.Host{Name: "far", VTEP: netip.MustParseAddr("10.9.0.3"), Control: netip.MustParseAddr("10.9.0.3"), Installation: "far", Store: mark}
	ep := model.Endpoint{
		Key: model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "far"}, Host: "far",
		IPv4: netip.MustParseAddr("10.1.1.99"), MAC: model.MAC{2, 2, 10, 1, 1, 99}, Identity: model.IdentityFirst,
	}
	b.put(func(tx store.Tx) error { return errors.Join(tables.Hosts.Put(tx, h), tables.Endpoints.Put(tx, ep)) })
	return h, ep
}

// endpointCounts tells how many local and remote endpoints the desired state has; -1 = there
// is none.
func (b *bed) endpointCounts() (ports, remotes int) {
	b.t.Helper()
	pic, ok := b.agent.mirror.cluster.Compile()
	if !ok {
		return -1, -1
	}
	return pic.Want.Ports.Len(), pic.Want.Remotes.Len()
}

func (b *bed) endpointCountsAre(ports, remotes int) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%d ports, %d remote endpoints", ports, remotes), func() error {
		if p, r := b.endpointCounts(); p != ports || r != remotes {
			return fmt.Errorf("%d and %d", p, r)
		}
		return nil
	})
}

// holds waits until the agent says that its desired state stands still, and why.
func (b *bed) holds(words ...string) {
	b.t.Helper()
	b.eventually("the agent holds its desired state", func() error {
		err := b.client().Ready(b.t.Context())
		if err == nil {
			return errors.New("it is ready")
		}
		state, problem := b.agent.Observer.State().Stale, b.agent.Observer.State().Problems[observe.AboutStore]
		for _, w := range words {
			if !strings.Contains(err.Error(), w) || !strings.Contains(state, w) || !strings.Contains(problem, w) {
				return fmt.Errorf("ready %w, stale %q, problem %q lack %q", err, state, problem, w)
			}
		}
		return nil
	})
}

var storeA = store.Incarnation{ID: "a", Generation: 1, Since: "2026-11-22T00:00:00Z"}

// attachedHost runs a host with an attachment and a remote endpoint on store A, for what
// then becomes of the store.
func attachedHost(t *testing.T, change ...func(*Config)) (b *bed, res attach.Result) {
	t.Helper()
	b = newBed(t, change...)
	b.identify(storeA)
	b.far(storeA.Mark())
	b.ready()
	res, err := b.client().Attach(t.Context(), request("c1", newSandbox(t)))
	if err != nil {
		t.Fatal(err)
	}
	b.endpointCountsAre(1, 1)
	t.Cleanup(func() {
		if err := b.client().Detach(context.WithoutCancel(t.Context()), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
			t.Error(err)
		}
	})
	return b, res
}

// TestReplacedStoreFreezesTheHost: an empty store, another one, and an older state do not
// change the desired state, through a restart of the agent too; ADD says why it fails
// (CNI's code 11), DEL works; when the right store is back all goes on, and what
// was deleted meanwhile is released.
func TestReplacedStoreFreezesTheHost(t *testing.T) {
	for _, tt := range []struct {
		name  string
		with  func(before *memory.Data) *memory.Data
		words []string
	}{
		{"empty", func(*memory.Data) *memory.Data { return memory.New().Data() }, []string{"empty, or another one", "netctl store adopt"}},
		{"new cluster", func(*memory.Data) *memory.Data {
			st := memory.New()
			_, err := st.Update(t.Context(), func(tx store.Tx) error {
				return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()), tables.Incarnations.Put(tx, store.Incarnation{ID: "b", Generation: 1}))
			})
			if err != nil {
				t.Fatal(err)
			}
			return st.Data()
		}, []string{"it is store b, epoch 1", "followed store a, epoch 1"}},
		{"older", func(before *memory.Data) *memory.Data { return before }, []string{"older state"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			b.identify(storeA)
			b.far(storeA.Mark())
			b.ready()
			before := b.st.Data()
			for _, c := range []string{"c1", "c2"} {
				if _, err := b.client().Attach(t.Context(), request(c, newSandbox(t))); err != nil {
					t.Fatal(err)
				}
			}
			b.endpointCountsAre(2, 1)
			b.eventually("the store is written down", func() error {
				m, err := statemirror.ReadPosition(b.cfg.StateDir, b.cfg.Log)
				if err == nil && (m.Mark() != storeA.Mark() || m.Revision < b.agent.mirror.cluster.Guard.Position().Revision) {
					err = fmt.Errorf("%+v", m)
				}
				return err
			})
			right := b.st.Data()
			b.st.Replace(tt.with(before), 0)
			b.holds(tt.words...)
			b.endpointCountsAre(2, 1)
			_, err := b.client().Attach(t.Context(), request("c3", newSandbox(t)))
			if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), tt.words[0]) {
				t.Errorf("ADD: %v", err)
			}
			if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c2", IfName: "eth0"}}); err != nil {
				t.Errorf("DEL: %v", err)
			}
			b.endpointCountsAre(1, 1)
			b.stop()
			b.fake = b.fake.Restart()
			b.start()
			b.holds(tt.words...)
			if o, _ := b.agent.reached.Get(); !o.At.IsZero() {
				t.Error("a store that is not followed was programmed")
			}
			b.st.Replace(right, 0)
			b.ready()
			b.endpointCountsAre(1, 1)
			b.eventually("c2's endpoint is released", func() error {
				if eps := b.endpoints(); len(eps) != 1 {
					return fmt.Errorf("%+v", eps)
				}
				return nil
			})
			if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRestoredStoreGetsEndpointsBack: into a store of a later epoch the agent puts back what runs
// here, with address and MAC, and waits for the other host to do so; it loses
// nothing of either. What was detached since the backup is released.
func TestRestoredStoreGetsEndpointsBack(t *testing.T) {
	b := newBed(t)
	b.identify(storeA)
	b.ready()
	if _, err := b.client().Attach(t.Context(), request("gone", newSandbox(t))); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client().Attach(t.Context(), request("c1", newSandbox(t))); err != nil { // of the same name, with another address
		t.Fatal(err)
	}
	backup := b.st.Data()
	for _, name := range []string{"gone", "c1"} {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: name, IfName: "eth0"}}); err != nil {
			t.Fatal(err)
		}
	}
	h, ep := b.far(storeA.Mark())
	res, err := b.client().Attach(t.Context(), request("c1", newSandbox(t)))
	if err != nil {
		t.Fatal(err)
	}
	b.endpointCountsAre(1, 1)
	restored := memory.New()
	restored.Replace(backup, 1_000_000)
	epoch := store.Incarnation{ID: "a", Generation: 7, Since: "2026-11-22T01:00:00Z"}
	if _, err := restored.Update(t.Context(), func(tx store.Tx) error { return tables.Incarnations.Put(tx, epoch) }); err != nil {
		t.Fatal(err)
	}
	b.st.Replace(restored.Data(), 0)
	b.holds("was restored", "waits", "far")
	b.endpointCountsAre(1, 1)
	var back model.Endpoint
	for _, e := range b.endpoints() {
		if e.Key.String() == res.Endpoint {
			back = e
		}
	}
	if back.MAC != res.MAC || back.IPv4 != res.Addresses[0].Prefix.Addr() {
		t.Errorf("put back as %+v, was %+v", back, res)
	}
	b.eventually("the host's record says that all of its is there", func() error {
		if r := b.hostRecord(); r.Store != epoch.Mark() {
			return fmt.Errorf("it says %q, want %q", r.Store, epoch.Mark())
		}
		return nil
	})
	h.Store = epoch.Mark()
	b.put(func(tx store.Tx) error { return errors.Join(tables.Hosts.Put(tx, h), tables.Endpoints.Put(tx, ep)) })
	b.ready()
	b.endpointCountsAre(1, 1)
	b.eventually("what was detached since the backup is released", func() error {
		if eps := b.endpoints(); len(eps) != 1 {
			return fmt.Errorf("%+v", eps)
		}
		return nil
	})
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Error(err)
	}
	b.nothingLeft()
}

// TestMissingHostDelaysOthersForAWhile: a host that does not come back delays the others for a while
// only.
func TestMissingHostDelaysOthersForAWhile(t *testing.T) {
	b, _ := attachedHost(t, func(c *Config) { c.StoreGrace = 2 * time.Second })
	b.put(func(tx store.Tx) error {
		tables.Endpoints.Delete(tx, model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "far"})
		return nil
	})
	b.endpointCountsAre(1, 0)
	backup := b.st.Data()
	b.far(storeA.Mark())
	b.endpointCountsAre(1, 1)
	restored := memory.New()
	restored.Replace(backup, 1_000_000)
	if _, err := restored.Update(t.Context(), func(tx store.Tx) error {
		return tables.Incarnations.Put(tx, store.Incarnation{ID: "a", Generation: 2})
	}); err != nil {
		t.Fatal(err)
	}
	b.st.Replace(restored.Data(), 0)
	b.holds("waits", "far")
	b.ready()
	b.endpointCountsAre(1, 0)
}

// TestAdoptedStoreIsFollowed: another store is followed when an operator says so, and what
// runs here is put back into it.
func TestAdoptedStoreIsFollowed(t *testing.T) {
	b, res := attachedHost(t, func(c *Config) { c.StoreGrace = time.Second })
	other := memory.New()
	other.Replace(b.st.Data(), 0)
	inc := store.Incarnation{ID: "b", Generation: 1}
	if _, err := other.Update(t.Context(), func(tx store.Tx) error {
		key, err := model.ParseEndpointKey(res.Endpoint)
		tables.Endpoints.Delete(tx, key)
		return errors.Join(err, tables.Incarnations.Put(tx, inc))
	}); err != nil {
		t.Fatal(err)
	}
	b.st.Replace(other.Data(), 0)
	b.holds("it is store b", "lacks 1 of 1")
	b.eventually("the host's record tells which store it follows", func() error {
		if r := b.hostRecord(); r.Store != statemirror.FrozenMark+storeA.Mark() {
			return fmt.Errorf("%q", r.Store)
		}
		return nil
	})
	inc.Replaces, inc.Generation = []string{"a"}, 2
	b.identify(inc)
	b.ready()
	b.endpointCountsAre(1, 1)
	if eps := b.endpoints(); len(eps) != 1 || eps[0].MAC != res.MAC {
		t.Errorf("endpoints %+v, want that of %+v", eps, res)
	}
}

// TestRestartedHostWaitsBeforeItAdopts: an agent that restarted while its desired state was frozen waits
// for the hosts of that state before it follows another store, also for hosts without a
// record there yet; for a host that does not come, it waits for a limited time.
func TestRestartedHostWaitsBeforeItAdopts(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprintf("the other host comes %v", comes), func(t *testing.T) {
			b, _ := attachedHost(t, func(c *Config) {
				if !comes {
					c.StoreGrace = 8 * time.Second
				}
			})
			b.eventually("the other host is written down", func() error {
				text, err := os.ReadFile(filepath.Join(b.cfg.StateDir, statemirror.HostsFile))
				if err == nil && !strings.Contains(string(text), `"far"`) {
					err = fmt.Errorf("%s", text)
				}
				return err
			})
			other := memory.New()
			other.Replace(b.st.Data(), 0)
			inc := store.Incarnation{ID: "b", Generation: 1}
			if _, err := other.Update(t.Context(), func(tx store.Tx) error {
				eps, err := endpointsOn(t.Context(), b.st, "far")
				tables.Endpoints.Delete(tx, eps[0].Key)
				tables.Hosts.Delete(tx, "far")
				return errors.Join(err, tables.Incarnations.Put(tx, inc))
			}); err != nil {
				t.Fatal(err)
			}
			b.st.Replace(other.Data(), 0)
			b.holds("it is store b", "waits", "far")
			b.restart()
			b.holds("it is store b")
			inc.Replaces, inc.Generation = []string{"a"}, 2
			b.identify(inc)
			b.holds("was restored", "waits", "far")
			b.endpointCountsAre(-1, -1)
			if comes {
				b.far(inc.Mark())
			}
			b.ready()
			b.endpointCountsAre(1, map[bool]int{true: 1}[comes])
		})
	}
}

// TestStoreGetsAnIdentityUnderRunningHosts: a cluster from before stores had identities gets one
// under running hosts; a damaged memory is judged by what runs here.
func TestStoreGetsAnIdentityUnderRunningHosts(t *testing.T) {
	b := newBed(t)
	b.ready()
	if _, err := b.client().Attach(t.Context(), request("c1", newSandbox(t))); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.ready()
	b.identify(storeA)
	b.eventually("it is remembered", func() error {
		m, err := statemirror.ReadPosition(b.cfg.StateDir, b.cfg.Log)
		if err == nil && m.ID != "a" {
			err = fmt.Errorf("%+v", m)
		}
		return err
	})
	b.ready()
	right := b.st.Data()
	b.stop()
	if err := os.WriteFile(filepath.Join(b.cfg.StateDir, statemirror.PositionFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.st.Replace(memory.New().Data(), 0)
	b.fake = b.fake.Restart()
	b.start()
	b.holds("none of the 1 attachments")
	b.st.Replace(right, 0)
	b.ready()
	b.endpointCountsAre(1, 0)
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Error(err)
	}
	b.nothingLeft()
}

// TestDeletedEndpointsAreRestored: an endpoint that is deleted under a container is restored as it was; one
// whose address was given to another is reported.
func TestDeletedEndpointsAreRestored(t *testing.T) {
	b, res := attachedHost(t)
	key, err := model.ParseEndpointKey(res.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	before := b.endpoints()[0]
	b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, key); return nil })
	b.eventually("it is back", func() error {
		if eps := b.endpoints(); len(eps) != 1 || eps[0].MAC != before.MAC || eps[0].IPv4 != before.IPv4 || eps[0].Container != before.Container {
			return fmt.Errorf("%+v", eps)
		}
		return nil
	})
	b.endpointCountsAre(1, 1)
	thief := before
	thief.Key.ID, thief.Host = "thief", "far"
	b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, key); return tables.Endpoints.Put(tx, thief) })
	b.eventually("it is told", func() error {
		if p := b.agent.Observer.State().Problems[observe.AboutAttachments]; !strings.Contains(p, "1 attachments") || !strings.Contains(p, "taken") {
			return fmt.Errorf("problem %q", p)
		}
		return nil
	})
	b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, thief.Key); return nil })
	b.endpointCountsAre(1, 1)
	b.ready()
}
