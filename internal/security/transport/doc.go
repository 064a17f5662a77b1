// Package transport is the one place that makes TLS configurations and HTTP servers: which
// end of which connection uses which. It guarantees that the zero Config is plain at every
// end, that a Directory of certificates is read again when its files change, and that each
// HTTP server (NewServer) has time limits. It must not read flags, know what is spoken on a
// connection, or handle unix sockets. It is called by netmaster, netplugin, netctl and the
// stores, wherever they listen or connect on TCP. Start with Config;
// docs/design/transport.md lists the ends.
package transport
