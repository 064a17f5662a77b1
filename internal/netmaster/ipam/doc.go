// Package ipam holds the pure allocators: which address of a subnet, or which
// number (VLAN, VNI, network id, identity), is handed out next.
//
// It guarantees: a value that it hands out is free, inside the allowed range, and,
// as long as there is another choice, not one that was freed a moment ago
// (next-fit); each operation costs the depth of a tree (at most six steps) however
// full the space is; memory grows with the used values, not with the subnet's size.
//
// It must not do I/O and is not safe for concurrent use: its owner
// (control's view) locks.
package ipam
