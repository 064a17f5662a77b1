// Package storetest is the conformance suite of store.Store: what it tests is
// what the rest of the system relies on, and each implementation has to pass it
// whole.
//
// It knows implementations only through Harness; a test that needs to know
// more belongs beside that implementation.
package storetest
