// Package shaping makes the queues of ports with a rate, for every driver: token buckets on
// interfaces, and pairs of interfaces that lead packets through one.
//
// It guarantees that a queue holds no more than what passes in a short time, that packets
// that wait stay when a rate changes, and that queues and interfaces of others are left
// alone.
//
// It must not decide who has a rate, nor how packets come to its interfaces.
// docs/adr/0026-bandwidth.md says why queues are what they are.
package shaping
