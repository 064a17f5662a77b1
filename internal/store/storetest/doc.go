// Package storetest is the conformance suite of store.Store: it tests what the rest of the
// system relies on. It guarantees that every implementation passes the same tests as a
// whole. It must not know an implementation except by its Harness. It is called by the
// tests of the stores and the relay; other tests use its proxy and processes. Start with
// Run.
package storetest
