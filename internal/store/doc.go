// Package store is the transactional key-value contract of the whole system: Store and Tx,
// the Backend that an implementation offers, mirrors, and views kept by one (Follower). It
// guarantees for each implementation that passes storetest: Update is serializable, Mirror
// delivers a snapshot, then whole transactions in order, and lists again after a gap. Lists
// in a transaction see no phantoms. It must not know keys beside its own two, or how
// transactions are made (engine). It is called by control, membership, netplugin's state
// mirror and all packages below it. Start with Store; docs/design/store.md explains it.
package store
