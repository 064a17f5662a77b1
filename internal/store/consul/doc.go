// Package consul implements store.Store on Consul's KV store: transactions with
// compare-and-commit, mirrors that follow a journal, and its own leases. It guarantees what
// storetest tests: a mirror sees whole Updates, a change costs only its size, and a lease's
// holder knows no later than others that it has ended. It must not rely on Consul's
// sessions, which end late and leave no trace in the journal, or on keys written by others
// under its prefixes. It is called by package clusterstore in cmd/internal, for netmaster
// and netplugin. Start with Client.
package consul
