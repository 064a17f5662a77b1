package statemirror

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// A mirror that goes on from another netmaster, or from the store, keeps nothing from
// being attached; but the list that it begins with must not be older than what was seen.
func TestResumedMirrorIsNotOlder(t *testing.T) {
	c, err := New(Config{Host: "h1", Store: memory.New(), Log: slog.New(slog.DiscardHandler), StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	m := c.mirrors.start(Scope{})
	m.ready, m.err, c.Guard.position.Revision = true, nil, 9
	c.mu.Unlock()
	c.mirrors.onState(t.Context(), m, store.ErrSourceChanged)
	if m.err != nil || m.floor != 9 {
		t.Errorf("while it moves: %v, and a list may be of revision %d", m.err, m.floor)
	}
	away := errors.New("away")
	c.mirrors.onState(t.Context(), m, away)
	c.mirrors.onState(t.Context(), m, store.ErrSourceChanged)
	if !errors.Is(m.err, away) {
		t.Errorf("it was away before it moved: %v", m.err)
	}
}
