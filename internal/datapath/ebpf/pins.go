package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/filelock"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Who removes what is pinned stops nothing: maps and links live as long as this
// process has them open. The next process would find nothing, and traffic would
// stand still until it has made all of it anew. So pins are put back at once.

// pinEvents are those of a directory that may have cost a pin.
const pinEvents = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT

// pinWatch hears of removals from the pin directory.
type pinWatch struct {
	file *os.File
	dir  string
}

func newPinWatch(dir string) (*pinWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: watch %s: %w", dir, err)
	}
	w := &pinWatch{os.NewFile(uintptr(fd), "inotify"), dir}
	if err := w.begin(); err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	return w, nil
}

// begin watches the directories as they are now; those that are watched stay so.
func (w *pinWatch) begin() error {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("ebpf driver: watch %s: %w", w.dir, err)
	}
	for _, dir := range []string{w.dir, filepath.Join(w.dir, "links"), filepath.Join(w.dir, "maps")} {
		var added error
		if err := raw.Control(func(fd uintptr) { _, added = unix.InotifyAddWatch(int(fd), dir, pinEvents) }); errors.Join(err, added) != nil {
			return fmt.Errorf("ebpf driver: watch %s: %w", dir, errors.Join(err, added))
		}
	}
	return nil
}

// watchPins tells the owner when pins are gone that this process did not remove.
func (d *Driver) watchPins(ctx context.Context) {
	defer d.wg.Done()
	defer context.AfterFunc(ctx, func() { _ = d.pinWatch.file.Close() })() // nothing is written
	b := make([]byte, 16<<10)
	for {
		if _, err := d.pinWatch.file.Read(b); err != nil {
			if ctx.Err() == nil {
				d.cfg.Log.Warn("removals of pinned objects are not told: they are found at the next look only", "error", err)
			}
			return
		}
		d.mu.Lock()
		gone := !d.closed && len(d.lostPins()) > 0
		if gone {
			d.verified = time.Time{} // the next Apply looks at everything
		}
		d.mu.Unlock()
		if gone {
			d.notify("pinned objects are gone")
		}
	}
}

// pinLock keeps a pin directory to one process: two would write the same maps,
// each taking out what the other puts in, and take each other's programs off.
type pinLock struct{ dir *os.File }

// lock takes the directory that is there now, unless it is held already.
func (l *pinLock) lock(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("ebpf driver: lock the pin directory: %w", err)
	}
	if l.holds(f) {
		return f.Close()
	}
	if err := filelock.Lock(f); err != nil {
		if errors.Is(err, filelock.ErrHeld) {
			err = model.Errorf(model.ErrConflict, "ebpf driver: another netplugin uses the pin directory %s; stop it, or give this one its own --ebpf-pin-dir", dir)
		} else {
			err = fmt.Errorf("ebpf driver: lock the pin directory %s: %w", dir, err)
		}
		return errors.Join(err, f.Close())
	}
	l.unlock()
	l.dir = f
	return nil
}

// holds tells whether it is this directory that is locked, and not one that was
// in its place.
func (l *pinLock) holds(f *os.File) bool {
	if l.dir == nil {
		return false
	}
	held, err1 := l.dir.Stat()
	now, err2 := f.Stat()
	return err1 == nil && err2 == nil && os.SameFile(held, now)
}

// unlock lets the directory go, as the end of the process does.
func (l *pinLock) unlock() {
	if l.dir != nil {
		_ = filelock.Unlock(l.dir) // nothing was written
		l.dir = nil
	}
}

// pinned is what can be pinned: a map, a program or a link.
type pinned interface {
	Pin(path string) error
	Unpin() error
}

// lostPins are the objects that are pinned no more, by where they should be. The
// caller holds d.mu.
func (d *Driver) lostPins() map[string]pinned {
	lost := map[string]pinned{}
	look := func(path string, p pinned) {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			lost[path] = p
		}
	}
	for name, m := range d.obj.pinned {
		look(filepath.Join(d.cfg.PinDir, "maps", name), m)
	}
	for path, o := range d.obj.reusable {
		look(path, o)
	}
	for name, l := range d.att.links {
		look(filepath.Join(d.att.dir, name), l)
	}
	return lost
}

// putPins puts lost pins back.
func (p *applyRun) putPins() {
	lost := p.lostPins()
	if len(lost) == 0 {
		return
	}
	err := pinDirectory(p.cfg.PinDir)
	if err == nil {
		err = p.pinLock.lock(p.cfg.PinDir)
	}
	for path, o := range lost {
		if err == nil {
			// It has to forget its place before it takes it again.
			if err = errors.Join(o.Unpin(), os.MkdirAll(filepath.Dir(path), 0o700)); err == nil {
				err = o.Pin(path)
			}
		}
	}
	if err == nil {
		err = p.pinWatch.begin()
	}
	if err != nil {
		p.problem("pin directory "+strings.TrimSuffix(p.cfg.PinDir, "/"), err)
		return
	}
	p.count(true)
	p.drift.Repaired(p.cfg.Log, driver.DriftPin, p.cfg.PinDir, len(lost))
}
