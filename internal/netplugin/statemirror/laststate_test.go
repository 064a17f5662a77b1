package statemirror

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// stateful is a store that remembers to whom the mirrors of tenant blue tell their state.
type stateful struct {
	store.Store
	mu   sync.Mutex
	blue []func(error)
}

func (s *stateful) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	var o store.MirrorOptions
	for _, opt := range opts {
		opt(&o)
	}
	if prefixes[0] == tables.TenantRest("blue")[0] {
		s.mu.Lock()
		s.blue = append(s.blue, o.OnState)
		s.mu.Unlock()
	}
	return s.Store.Mirror(ctx, prefixes, fn, opts...)
}

func (s *stateful) stateFuncs() []func(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blue
}

// TestEndedMirrorsAreIgnored: what a mirror says after it was ended, that it cannot follow, is not
// held against the one in its place, which nothing might ever correct.
func TestEndedMirrorsAreIgnored(t *testing.T) {
	st := &stateful{Store: memory.New()}
	c := newCluster(t, st)
	follow(t, c)
	c.AcquireTenant("blue")
	ready := func(n int) func() error {
		return func() error {
			if m := c.mirrors.byScope[TenantScope("blue")]; len(st.stateFuncs()) < n || !m.ready || m.err != nil || c.mirrors.byScope[Scope{}].err != nil {
				return errors.New("the tenant is not followed")
			}
			return nil
		}
	}
	until(t, c, "the first mirror", ready(1))
	c.mu.Lock()
	m := c.mirrors.byScope[TenantScope("blue")]
	m.cancel()
	m.err = errors.New("until the next one follows")
	c.mirrors.follow(m)
	c.mu.Unlock()
	until(t, c, "the second mirror", ready(2))
	gone := errors.New("revisions were compacted")
	st.stateFuncs()[0](gone)
	if err := c.NotFollowing(); err != nil {
		t.Errorf("by the word of a mirror that was ended: %v", err)
	}
	st.stateFuncs()[1](gone)
	if err := c.NotFollowing(); !errors.Is(err, gone) {
		t.Errorf("by the word of the one that runs: %v", err)
	}
}
