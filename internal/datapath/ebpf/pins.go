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

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Removing pins stops nothing: maps and links live as long as this process has them open.
// The next process would find nothing, and traffic would stop until it has made all of it
// again. So pins are restored at once.

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
	if err := w.watchDirectories(); err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	return w, nil
}

// watchDirectories watches the present directories; watched ones stay watched.
func (w *pinWatch) watchDirectories() error {
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

// pins are the pinned objects of this process, and their directory. Driver.mu guards lock.
type pins struct {
	dir     string
	obj     *objects
	att     *attacher
	repairs repairs
	lock    pinLock
	watch   *pinWatch
}

// watchPins tells the owner when pins are gone that this process did not remove.
func (d *Driver) watchPins(ctx context.Context) {
	defer d.wg.Done()
	defer context.AfterFunc(ctx, func() { _ = d.dp.pins.watch.file.Close() })() // nothing is written
	b := make([]byte, 16<<10)
	for {
		if _, err := d.dp.pins.watch.file.Read(b); err != nil {
			if ctx.Err() == nil {
				d.cfg.Log.Warn("removals of pinned objects cannot be watched: they are found at the next check only", "error", err)
			}
			return
		}
		d.mu.Lock()
		gone := !d.closed && len(d.dp.pins.missing()) > 0
		if gone {
			d.dp.ports.verified = time.Time{} // the next Apply looks at everything
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
	if err := durable.Lock(f); err != nil {
		if errors.Is(err, durable.ErrLocked) {
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

// holds reports whether it is this directory that is locked, and not one that was
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
		_ = durable.Unlock(l.dir) // nothing was written
		l.dir = nil
	}
}

// pinned is what can be pinned: a map, a program or a link.
type pinned interface {
	Pin(path string) error
	Unpin() error
}

// missing are the objects that are pinned no more, by where they should be. The caller holds
// Driver.mu.
func (p *pins) missing() map[string]pinned {
	lost := map[string]pinned{}
	look := func(path string, p pinned) {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			lost[path] = p
		}
	}
	for name, m := range p.obj.pinned {
		look(filepath.Join(p.dir, "maps", name), m)
	}
	for path, o := range p.obj.reusable {
		look(path, o)
	}
	for name, l := range p.att.links {
		look(filepath.Join(p.att.dir, name), l)
	}
	return lost
}

// restore puts lost pins back.
func (p *pins) restore(run *applyRun) {
	lost := p.missing()
	if len(lost) == 0 {
		return
	}
	err := pinDirectory(p.dir)
	if err == nil {
		err = p.lock.lock(p.dir)
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
		err = p.watch.watchDirectories()
	}
	if err != nil {
		run.problem("pin directory "+strings.TrimSuffix(p.dir, "/"), err)
		return
	}
	run.count(true)
	p.repairs.note(driver.DriftPin, p.dir, len(lost))
}
