// Package quota shares a number of places among clients: connections, or requests in
// progress.
//
// It guarantees that no more places are taken than there are, that no client has more than
// its share of them, and that a place that is given back twice is given back once.
//
// It must not know what a place is for, nor wait for one.
package quota
