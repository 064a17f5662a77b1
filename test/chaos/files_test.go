//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func fileMistakes() []*mistake {
	all := []string{"agent@", "plane@", "master", "store"}
	return []*mistake{
		{name: "a victim's journal entry deleted", needs: all, do: victimEntry(os.Remove)},
		{name: "a victim's journal entry damaged", needs: all, do: victimEntry(damage)},
		{name: "all journal entries damaged", needs: []string{"agent@", "plane@"}, do: damageAll},
		{name: "netplugin's state directory emptied", needs: all, do: emptyState},
		{name: "driver.json deleted", needs: []string{"agent@"}, do: driverFile(os.Remove)},
		{name: "driver.json damaged", needs: []string{"agent@"}, do: driverFile(damage)},
		{name: "rubbish in the spool", needs: []string{"agent@"}, do: rubbishInSpool},
		{name: "the CNI socket deleted", needs: []string{"agent@", "plane@"}, do: socketDeleted},
		{name: "pins deleted", only: testcluster.DriverEBPF, needs: []string{"agent@", "plane@"}, do: pinsDeleted},
		{name: "the disk of the state directory full", needs: all, statusWords: []string{"disk"}, do: diskFull},
		{name: "another store, an empty one", needs: []string{"store", "master", "agent"}, statusWords: []string{"store"}, do: emptyStore},
	}
}

// damage leaves the first half of a file.
func damage(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b[:len(b)/2], 0o600)
}

// victimEntry spoils the journal's file of a victim while netplugin is down.
func victimEntry(spoil func(string) error) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		before, err := journal(h)
		if err != nil {
			return nil, err
		}
		s, err := w.victim(ctx, h)
		if err != nil {
			return nil, err
		}
		back := func(ctx context.Context) error { return w.DelContainer(ctx, s) }
		after, err := journal(h)
		if err != nil || len(after) != len(before)+1 {
			return back, fmt.Errorf("the journal has %d entries, before the victim %d: %w", len(after), len(before), err)
		}
		if err := h.KillAgent(); err != nil {
			return back, err
		}
		had := map[string]bool{}
		for _, f := range before {
			had[f] = true
		}
		for _, f := range after {
			if !had[f] {
				err = errors.Join(err, spoil(f))
			}
		}
		return back, errors.Join(err, w.startAgent(ctx, h))
	}
}

func damageAll(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	files, err := journal(h)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		err = errors.Join(err, damage(f))
	}
	return nil, errors.Join(err, w.restartAgent(ctx, h))
}

// emptyState deletes what netplugin has written, either while it runs or while it
// is down; netplugin is to find its containers by what the host shows.
func emptyState(ctx context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
	down := r.IntN(2) == 0
	if down {
		if err := h.KillAgent(); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(h.StateDir())
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(h.StateDir(), e.Name())))
	}
	if down {
		return nil, errors.Join(err, w.startAnew(ctx, h))
	}
	return func(ctx context.Context) error { return errors.Join(h.KillAgent(), w.startAnew(ctx, h)) }, err
}

// startAnew starts a netplugin that has lost its installation's identity: while
// the registration of the killed one lasts, some 10 seconds, it is refused as a
// stranger under its own name, and its supervisor starts it again.
func (w *world) startAnew(ctx context.Context, h *testcluster.Host) error {
	within, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	name := h.Name + "-netplugin"
	w.down[name] = true
	defer delete(w.down, name)
	return testcluster.Until(within, name+" to start anew", func(ctx context.Context) error {
		err := w.startAgent(ctx, h)
		if err != nil && !strings.Contains(err.Error(), "is taken") {
			return errors.Join(err, h.KillAgent())
		}
		return err
	})
}

func driverFile(spoil func(string) error) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		err := spoil(filepath.Join(h.StateDir(), "driver.json"))
		if errors.Is(err, os.ErrNotExist) {
			err = nil // a driver that was asked for by name need not be written down
		}
		return nil, errors.Join(err, w.restartAgent(ctx, h))
	}
}

func rubbishInSpool(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	dir := filepath.Join(h.StateDir(), "spool")
	err := os.MkdirAll(dir, 0o700)
	for name, text := range map[string]string{"a.json": "{", "b.json": `{"key":{}}`, "c": "\x00\x01", "d.json": "[]"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return nil, errors.Join(err, w.restartAgent(ctx, h))
}

// socketDeleted deletes the socket; netplugin makes it again.
func socketDeleted(ctx context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	if err := os.Remove(h.CNISocket()); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return nil, testcluster.Until(within, "the CNI socket to be back", func(context.Context) error {
		_, err := os.Lstat(h.CNISocket())
		return err
	})
}

// pinsDeleted takes the pins away under the running netplugin.
func pinsDeleted(_ context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	err := os.RemoveAll(h.PinDir())
	if errors.Is(err, syscall.ENOTEMPTY) {
		err = nil // netplugin puts pins back meanwhile
	}
	return func(ctx context.Context) error { return w.restartAgent(ctx, h) }, err
}

// diskFull fills the disk of the journal: an ADD is refused in words, and
// nothing of it stays.
func diskFull(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	filler := filepath.Join(h.StateDir(), "filler")
	name := h.Name + "-netplugin"
	w.down[name] = true // it is not ready and need not become so
	back := func(ctx context.Context) error {
		delete(w.down, name)
		return errors.Join(os.Remove(filler), h.Status(ctx))
	}
	if err := fill(filler); err != nil {
		return back, err
	}
	s, err := w.victim(ctx, h)
	if err == nil {
		return back, errors.Join(errors.New("an ADD succeeded that cannot be written down"), w.DelContainer(ctx, s))
	}
	if !strings.Contains(err.Error(), "no space left") && !strings.Contains(err.Error(), "full") {
		return back, fmt.Errorf("an ADD on a full disk says only: %w", err)
	}
	return back, nil
}

// fill writes until nothing fits any more.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<16); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return f.Close()
}

// emptyStore lets a store with nothing in it answer in the place of the right
// one, and puts the right one back.
func emptyStore(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	name, data, start := "etcd", filepath.Join(w.Config().Dir, "master", "etcd"), w.Store.StartEtcd
	if w.Config().Embedded {
		name, data, start = "netmaster", w.data(), func(ctx context.Context) error { return w.Masters.StartMaster(ctx) }
	}
	if err := w.Process(name).Kill(); err != nil {
		return nil, err
	}
	if err := os.Rename(data, data+".kept"); err != nil {
		return nil, err
	}
	back := func(ctx context.Context) error {
		if err := w.Process(name).Kill(); err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(data), os.Rename(data+".kept", data)); err != nil {
			return err
		}
		return errors.Join(start(ctx), w.ready(ctx))
	}
	if err := start(ctx); err != nil {
		return back, err
	}
	return back, w.flow(ctx, 100+r.IntN(200)) // time for everybody to look at it
}
