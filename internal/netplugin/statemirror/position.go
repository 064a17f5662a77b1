package statemirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
)

const (
	// PositionFile, in the state directory, says which store is followed.
	PositionFile = "store.json"
	// positionInterval is how often the highest revision is written down.
	positionInterval = 5 * time.Second
)

// ReadPosition reads which store the host has followed; none when it has followed
// none yet. A damaged file is set aside: then the store is judged by whether it
// has what runs here.
func ReadPosition(dir string, log *slog.Logger) (StorePosition, error) {
	path := filepath.Join(dir, PositionFile)
	var m StorePosition
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read the identity of this host's store: %w", err)
	}
	if err = json.Unmarshal(data, &m); err == nil && m.Version != 1 {
		err = errors.New("it is not of version 1")
	}
	if err != nil {
		log.Error("the identity of this host's store cannot be read", "file", path, "error", err)
		if err := os.Rename(path, path+".bad"); err != nil {
			return m, fmt.Errorf("move %s away: %w", path, err)
		}
		return StorePosition{}, nil
	}
	return m, nil
}

// same reports whether only the revision may differ.
func (m StorePosition) same(o StorePosition) bool { return m.Same(o.Incarnation) && m.Older == o.Older }

// SavePosition writes down which store the host follows, durably when it is
// another one, and how far it has seen it, until ctx ends.
func (g *StoreGuard) SavePosition(ctx context.Context) {
	path := filepath.Join(g.StateDir, PositionFile)
	last := g.Position()
	tick := time.NewTicker(positionInterval)
	defer tick.Stop()
	for ended := false; !ended; {
		changed := g.changes.Next()
		now := g.Position()
		now.Version = 1
		if now.same(last) {
			select {
			case <-changed:
				if g.Position().same(last) {
					continue
				}
			case <-tick.C:
			case <-ctx.Done():
				ended = true
			}
			now = g.Position()
			now.Version = 1
		}
		if now.same(last) && now.Revision == last.Revision {
			continue
		}
		var err error
		if !now.same(last) {
			err = durable.WriteJSON(path, now)
		} else {
			var data []byte
			if data, err = json.Marshal(now); err == nil {
				err = durable.Replace(path, append(data, '\n'))
			}
		}
		if err != nil {
			g.Log.Debug("the identity of this host's store cannot be written yet", "error", err)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			continue
		}
		last = now
	}
}
