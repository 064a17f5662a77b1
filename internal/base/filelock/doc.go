// Package filelock keeps what is on a disk to one process: an exclusive lock of an
// open file or directory, which ends with the process.
//
// Unlock ends the lock at once, also while a child of this process is being started:
// between fork and exec such a child holds a copy of every descriptor, and closing
// ours alone would leave it locked until the child's program runs.
//
// It must not wait for a lock, nor know what is locked.
package filelock
