// Package quota shares a number of places among clients: connections, or requests in
// progress. It guarantees that no more places are taken than there are, that no client has
// more than its share, and that a place returned twice counts once. It must not know what a
// place is for, or wait for one. It is called by connlimit, transport, netmaster's
// membership and the name server. Start with Places.
package quota
