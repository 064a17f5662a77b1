// Package store is the transactional key-value contract that the whole system
// stands on: Store and Tx, what a backend has to offer for them, the batches
// of a mirror, and views kept by one (Follower).
//
// It guarantees what it says of each method to every implementation that
// passes storetest: Update is serializable and returns its commit revision;
// Mirror delivers one complete snapshot and then whole transactions in revision
// order, re-listing by itself after any gap; a list inside a transaction is
// protected against phantoms.
//
// It must not know which keys there are but its own two (those are tables'
// business), nor how transactions are made (engine's), nor what is elected or
// registered (cluster's).
package store
