package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Defaults of a File.
const (
	DefaultMaxBytes = 16 << 20
	DefaultKeep     = 8
)

// File is a file of lines for its owner alone, which is moved to PATH.1 when it
// is full, PATH.1 to PATH.2 and so on. It is for one goroutine at a time.
type File struct {
	path  string
	limit int64 // bytes of one file
	keep  int   // former ones
	file  *os.File
	size  int64
	write func(*os.File, []byte) (int, error)
}

// OpenFile opens a file, or makes it, with at most limit bytes and so many former
// ones (0 = the defaults): together they have at most limit times keep+1, unless
// a single line is longer than limit.
func OpenFile(path string, limit int64, keep int) (*File, error) {
	if limit == 0 {
		limit = DefaultMaxBytes
	}
	if keep == 0 {
		keep = DefaultKeep
	}
	if !filepath.IsAbs(path) || limit < 0 || keep < 0 {
		return nil, fmt.Errorf("audit log %q: must be an absolute path, with a size and number of files that are not negative", path)
	}
	f := &File{path: path, limit: limit, keep: keep, write: (*os.File).Write}
	return f, f.open()
}

// open opens the file unless that is a link, a device or another's.
func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	st, err := file.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = fmt.Errorf("open the audit log %s: it is not a regular file", f.path)
	case st.Mode().Perm()&0o077 != 0: // somebody made it beforehand
		err = file.Chmod(0o600)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, st.Size()
	return f.endTornLine()
}

// endTornLine ends a line that was torn when the machine lost its power.
func (f *File) endTornLine() error {
	last := make([]byte, 1)
	if f.size == 0 {
		return nil
	}
	_, err := f.file.ReadAt(last, f.size-1)
	if err == nil && last[0] != '\n' {
		if _, err = f.write(f.file, []byte("\n")); err == nil {
			f.size++
		}
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("repair the audit log's last line: %w", err), f.file.Close())
		f.file = nil
	}
	return err
}

// Write appends a line, or nothing.
func (f *File) Write(line []byte) (int, error) {
	if f.file != nil && f.isReplaced() {
		_ = f.file.Close() // what was written is written
		f.file = nil
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if f.size > 0 && f.size+int64(len(line)) > f.limit {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.write(f.file, line)
	if err == nil {
		f.size += int64(n)
		return n, nil
	}
	if n > 0 { // a full disk takes a part
		err = errors.Join(err, f.file.Truncate(f.size))
	}
	return 0, err
}

// isReplaced reports whether the file has lost its name, since it was moved or removed.
func (f *File) isReplaced() bool {
	named, err := os.Lstat(f.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	have, err := f.file.Stat()
	return err != nil || !os.SameFile(have, named)
}

// rotate moves the files on; the oldest goes.
func (f *File) rotate() error {
	err := f.file.Close()
	f.file = nil
	for i := f.keep; i >= 1 && err == nil; i-- {
		from := f.path
		if i > 1 {
			from = f.rotatedPath(i - 1)
		}
		if err = os.Rename(from, f.rotatedPath(i)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("rotate the audit log: %w", err)
	}
	return f.open()
}

func (f *File) rotatedPath(i int) string { return f.path + "." + strconv.Itoa(i) }

// Close closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
