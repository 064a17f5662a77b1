// Package durable writes files that survive a crash of the machine, and locks files and
// directories. It guarantees that a file has its whole old or its whole new contents after
// a crash, and the new contents once a write returned without an error. A lock ends with
// the process that took it. It must not wait for a lock, know what it writes, or import
// anything but the standard library, because contivk8s starts for every container. It is
// called by netmaster, netplugin, netctl and contivk8s. Start with Write.
package durable
