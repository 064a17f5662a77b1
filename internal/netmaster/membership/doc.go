// Package membership makes one replicated etcd of netmasters. The first one founds it, and
// others join it by a token. Lost members are removed. A cluster that lost its majority is
// founded again from one member.
//
// It guarantees:
//   - Members speak to each other by mutual TLS only, with an authority of their own.
//   - A token admits one directory, once, before it expires, and is shown only to the
//     cluster that made it.
//   - A kill at any step leaves a directory that records how far it came, so that the same
//     command line goes on from there.
//   - A directory of another cluster, or one that has lost its data, is never taken for a
//     new one.
//   - No member is removed, and no learner gets a vote, where one more loss would stop
//     writes. The second member is the exception, and a warning says so.
//
// It must not read flags, nor know what the store holds beside its own rows and the store's
// identity.
package membership
