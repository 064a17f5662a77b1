package agent

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestRefusedRepetitionKeepsTheInterface: a container that is asked for again, in a way that is refused, keeps the
// interface that it has; one that is asked for in another way that is right gets that,
// also when the group is so new that this host has not heard of it.
func TestRefusedRepetitionKeepsTheInterface(t *testing.T) {
	b := newBed(t)
	b.network("blue", "net5", 5)
	group := func(name model.GroupName, network model.NetworkName) {
		b.put(func(tx store.Tx) error {
			return tables.Groups.Put(tx, model.Group{Key: model.GroupKey{Tenant: "blue", Name: name}, Network: network, ID: model.IdentityFirst})
		})
	}
	group("web", "net5")
	b.ready()
	s := newSandbox(t)
	first, err := b.client().Attach(t.Context(), request("c1", s))
	if err != nil {
		t.Fatal(err)
	}
	calls := func() int {
		b.master.mu.Lock()
		defer b.master.mu.Unlock()
		return b.master.calls["/plugin/createEndpoint"] + b.master.calls["/plugin/deleteEndpoint"]
	}
	before := calls()
	for name, x := range map[string]struct {
		change func(*attach.Request)
		kind   error
	}{
		"a group of another network":   {func(r *attach.Request) { r.Network, r.Group = "net1", "web" }, model.ErrConflict},
		"a group that is not there":    {func(r *attach.Request) { r.Group = "nobody" }, model.ErrNotFound},
		"a network that is not there":  {func(r *attach.Request) { r.Network = "nowhere" }, model.ErrNotFound},
		"more than the underlay takes": {func(r *attach.Request) { r.Network, r.MTU = "net5", 9000 }, model.ErrInvalid},
	} {
		r := request("c1", s)
		x.change(&r)
		if _, err := b.client().Attach(t.Context(), r); !errors.Is(err, x.kind) {
			t.Errorf("%s: %v, want %v", name, err, x.kind)
		}
	}
	if n := calls(); n != before {
		t.Errorf("netmaster was asked %d times", n-before)
	}
	again, err := b.client().Attach(t.Context(), request("c1", s))
	if diff := cmp.Diff(first, again, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v, (-first +again):\n%s", err, diff)
	}
	if n := calls(); n != before {
		t.Error("it was attached anew")
	}
	right := request("c1", s)
	right.Group = "later"
	b.agent.mirror.cluster.Pause()
	group("later", "net5")
	done := make(chan error, 1)
	go func() {
		res, err := b.client().Attach(t.Context(), right)
		if err == nil && (res.Group != "later" || res.Endpoint == first.Endpoint) {
			err = errors.New("it is " + res.Endpoint + " of group " + res.Group)
		}
		done <- err
	}()
	<-time.After(100 * time.Millisecond) // for which the host is behind
	b.agent.mirror.cluster.Resume()
	if err := <-done; err != nil {
		t.Errorf("a right group: %v", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: right.Key}); err != nil {
		t.Error(err)
	}
	b.nothingLeft()
}
