// Package memory is the in-memory store: the reference for what the others must
// do, and the store of tests, with hooks for faults (conflicts, absence, pause,
// lost watches, compaction, sessions that expire, other data).
//
// It guarantees what storetest asks of any store.
//
// It must not be used by programs: nothing of it outlives the process.
package memory
