// Package transport makes TLS configurations, HTTP servers and listeners: which end of a
// connection uses which, and how many a client has (Places). It guarantees that the zero
// Config is plain, that a Directory and a TokenFile are read again when they change, that
// no log or error shows a token, and that servers have time limits. It must not read flags
// or know what is spoken. It is called by netmaster, netplugin, netctl and the stores,
// wherever they listen or connect on TCP. Start with Config; docs/design/transport.md.
package transport
