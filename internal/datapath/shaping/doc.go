// Package shaping makes the queues of ports with a rate limit: token buckets on interfaces,
// and pairs of interfaces that lead packets through one. docs/adr/0026-bandwidth.md has the
// reasons. It guarantees that a queue holds only a short time's packets, and that waiting
// packets stay when a rate changes. It must not decide who has a rate, or touch queues and
// interfaces of others. It is called by both drivers, ebpf and ovs, and their conformance
// suite. Start with Queues.
package shaping
