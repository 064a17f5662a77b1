// Package transport is the one place where a process of Contiv gets its TLS
// from: which end of which connection uses which configuration.
//
// It guarantees that the zero Config is plain at every end, as programs are
// today, and that no listener on TCP and no client of the REST interface or of
// the store is made anywhere else with a TLS configuration of its own.
//
// It must not read flags or files of certificates (the embedded etcd reads its
// own), nor know what is spoken on a connection. Unix sockets are no part of it.
package transport
