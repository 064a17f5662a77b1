// Package etcd implements store.Store on etcd v3 (server 3.4 and later). Package membership
// runs an embedded one. It guarantees the promises of package store, and that no error,
// lease or revision type of etcd leaves it. A timeout is model.ErrUnavailable and names the
// endpoints. It must not know keys except by prefix, or be imported except by programs,
// membership and tests. It is called by package clusterstore in cmd/internal, membership
// and bench/scale. Start with Client.
package etcd
