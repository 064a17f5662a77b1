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

	"github.com/contiv/netplugin/v2/internal/driver"
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

// pinned is what can be pinned, a map or a link.
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
	for name, l := range d.att.links {
		look(filepath.Join(d.att.dir, name), l)
	}
	return lost
}

// putPins puts lost pins back.
func (p *pass) putPins() {
	lost := p.lostPins()
	if len(lost) == 0 {
		return
	}
	err := pinDirectory(p.cfg.PinDir)
	for path, o := range lost {
		if err == nil {
			// It has to forget its place before it takes it again.
			if err = o.Unpin(); err == nil {
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
