// Package store is the transactional key-value contract that the whole system
// stands on, the typed tables laid over it (the one key layout), and what
// follows from both: mirrors, sessions, fenced election, service registry.
//
// It guarantees: Update is serializable and returns its commit revision;
// Mirror delivers one complete snapshot and then whole transactions in revision
// order, re-listing by itself after any gap; a list inside a transaction is
// protected against phantoms.
//
// It must not know what the objects mean: validation, references and
// allocation belong to control and ipam. Only this package knows keys.
package store
