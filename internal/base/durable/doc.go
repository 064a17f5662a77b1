// Package durable writes files so that they survive a crash of the machine: after
// the crash a file has its whole old contents or its whole new contents; once the
// write has returned without an error, the new.
//
// Lock keeps a file or directory to one process, for as long as that lives.
//
// It must not wait for a lock, know what it writes or locks, nor import anything but the standard library: it
// is linked into contivk8s, which starts for every container.
package durable
