// Package plumb makes, configures, checks and removes the veth pairs that
// connect containers to the host's data plane.
//
// It guarantees that every pair it makes can be recognised by a process without
// memory (name and alias of the host side), that removal of what is absent
// succeeds, that nothing remains of a pair whose making failed, and that calls
// for different containers run in parallel: each opens its own netlink sockets,
// and threads that enter a namespace are locked and given up if they cannot
// come back.
//
// It must not know the store, the data plane, or who asked; it runs no programs.
package plumb
