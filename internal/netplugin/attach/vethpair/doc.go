// Package vethpair makes, configures, checks and removes the veth pairs that
// connect containers to the host's data plane.
//
// It guarantees that every pair it makes can be recognised by a process without
// memory (name and alias of the host side), that removal of an absent pair
// succeeds, that nothing remains of a pair that could not be made, and that calls
// for different containers run in parallel: each opens its own netlink sockets,
// and a thread that enters a namespace is locked, and ended if it cannot return.
//
// It must not know the store, the data plane, or who asked; it runs no programs.
package vethpair
