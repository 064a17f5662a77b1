// Package membership makes one replicated etcd of netmasters: the first one founds it,
// others join by a token, and a cluster without a majority is founded again from one
// member. It guarantees mutual TLS between members, tokens that admit one directory once,
// that the same command line goes on after a kill at any step, and that no directory of
// another cluster is taken for a new one. It must not read flags, or know what the store
// holds beside its own rows. It is called by cmd/netmaster, and by test/kube/cluster. Start
// with Member; docs/design/join.md explains it.
package membership
