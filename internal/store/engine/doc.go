// Package engine is the one implementation of transactions: isolation, retries, fences and
// claims over a store.Backend, which adds only reading at a revision and a
// compare-and-commit.
//
// It guarantees that commits are serializable in the order of their revisions, that a list
// is protected against phantoms by the generation of its scope, and that a list that
// competes with writers succeeds in bounded time.
//
// It must not know which rows there are, nor which store it uses.
package engine
