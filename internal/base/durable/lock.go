package durable

import (
	"errors"
	"os"
	"syscall"
)

// ErrLocked says that somebody else holds the lock, in this process or another.
var ErrLocked = errors.New("is locked by another process")

// Lock takes the exclusive lock of a file or directory (flock(2)) or fails with
// ErrLocked. The file stays open for as long as the lock is wanted.
func Lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// Unlock ends the lock and closes the file. The lock ends at once, also while a child of
// this process is being started: between fork and exec such a child holds a copy of every
// descriptor, and closing ours alone would leave it locked until the child's program runs.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
