// Package membership makes one replicated etcd of netmasters: the first one founds it,
// others join it by a token, members that are lost are removed, and what is left
// of a cluster that lost its majority is made one again.
//
// It guarantees that members speak to each other by mutual TLS only, with an
// authority of their own; that a token admits one directory, once, before its end,
// and is shown to nobody but the cluster that made it; that a kill at any step
// leaves a directory which says how far it came, so that the same command line goes
// on from there; that a directory which is of another cluster, or has lost its
// data, is never taken for a new one; and that no member is removed, nor a learner
// given a vote, where one more loss would stop writes, but the second member's,
// which is told of.
//
// It must not read flags, nor know what the store holds beside its own rows and the
// store's identity.
package membership
