// Package ipam holds the pure allocators of addresses in a subnet, and of numbers such as
// VLANs, VNIs, network ids and identities. It guarantees that a value is free, allowed, and
// not freed a moment ago if there is another choice. An operation takes at most six steps
// down a tree, and memory grows with the used values only. It must not do I/O, and it has
// no locks: its caller locks. It is called by control's view and its transactions. Start
// with Space and Numbers.
package ipam
