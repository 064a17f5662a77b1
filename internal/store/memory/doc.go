// Package memory is the store in memory: the reference for the others, with hooks for
// faults such as conflicts, absence, lost watches, compaction and expired sessions. It
// guarantees what storetest tests of any store. It must not be used by programs: its data
// end with the process. It is called by tests of netmaster, netplugin and packages of the
// store. Start with Store.
package memory
