// Package fabric is this host's part of the physical network's routing: by the
// host's BGP settings it runs the speaker, tells it what this host has, and has the
// host's stack follow what it learns.
//
// It guarantees that nothing is announced before the stack leads there, that routes
// of an earlier process stay until the neighbors have told all, that a process which
// ends leaves routes and announcements for the one that follows, and that all goes
// when the settings go. What keeps it from that is a problem in a sentence.
//
// It must not know how containers are attached, ask a netmaster, or decide what
// data planes do.
package fabric
