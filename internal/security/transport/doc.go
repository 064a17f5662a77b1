// Package transport is the one place where a process of Contiv gets its TLS
// from: which end of which connection uses which configuration.
//
// It guarantees that the zero Config is plain at every end, as programs are
// today, and that no listener on TCP and no client of the REST interface or of
// the store is made anywhere else with a TLS configuration of its own.
//
// NewServer makes each HTTP server, so that none is without time limits.
//
// A Directory makes a Config of a certificate's files, and follows them.
//
// It must not read flags, nor know what is spoken on a connection. Unix sockets are
// no part of it.
package transport
