package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A lineFile leaves this much of its file system free, but no more than a tenth
// of it: what else lies there is needed more.
const (
	lineFileReserve       = 100 << 20
	lineFileCheckInterval = time.Second // how old such a look may be
)

// lineFile appends lines to a file, which it makes for its owner alone.
type lineFile struct {
	path      string
	reopen    atomic.Bool
	file      *os.File  // nil while it is not open
	torn      bool      // it does not end with a line's end
	checkedAt time.Time // at the name, and at what is free
	full      error     // as of then
}

// Write implements Lines.
func (f *lineFile) Write(_ context.Context, line []byte) error {
	now := time.Now()
	look := now.Sub(f.checkedAt) >= lineFileCheckInterval
	if f.reopen.Swap(false) || look && f.isReplaced() {
		_ = f.Close() // what was written is written
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return err
		}
		look = true
	}
	if look {
		f.checkedAt, f.full = now, f.checkSpace()
	}
	if f.full != nil {
		return f.full
	}
	text := make([]byte, 0, len(line)+2)
	if f.torn {
		text = append(text, '\n')
	}
	text = append(append(text, line...), '\n')
	n, err := f.file.Write(text)
	if n > 0 {
		f.torn = n < len(text)
	}
	return err // names the file
}

// open opens the file, unless it is one that would have to be waited for.
func (f *lineFile) open() error {
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	st, err := file.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("open %s: it is not a regular file", f.path)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	last := make([]byte, 1)
	if st.Size() > 0 {
		if _, err := file.ReadAt(last, st.Size()-1); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	f.torn = st.Size() > 0 && last[0] != '\n' // who wrote it has died in the middle
	f.file = file
	return nil
}

// isReplaced reports whether another file has the name now, or none: log rotation may send no
// signal.
func (f *lineFile) isReplaced() bool {
	if f.file == nil {
		return false
	}
	have, err := f.file.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(f.path)
	return err != nil || !os.SameFile(have, named)
}

// checkSpace tells that the file system is too full.
func (f *lineFile) checkSpace() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.file.Fd()), &st); err != nil {
		return fmt.Errorf("check the free space of %s: %w", f.path, err)
	}
	block := uint64(st.Bsize)
	return checkReserve(f.path, st.Bavail*block, st.Blocks*block)
}

// checkReserve tells that no more may be written, by the bytes of a file system.
func checkReserve(path string, free, size uint64) error {
	if spare := min(lineFileReserve, size/10); free < spare {
		return fmt.Errorf("write %s: the last %d MiB of its file system are reserved for other files; free some space", path, spare>>20)
	}
	return nil
}

// Reopen implements Lines.
func (f *lineFile) Reopen() { f.reopen.Store(true) }

// Close implements Lines.
func (f *lineFile) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// String implements Lines.
func (f *lineFile) String() string { return f.path }
