// Package access decides who may do what at netmaster's REST interface: an
// http.Handler before it finds out who asks, by a certificate or a bearer's token,
// looks the request up in a table of all routes, and has changes and refusals
// recorded. Packages below it keep tokens, judge those of an issuer, limit clients
// and write the record.
//
// It guarantees that what is in no row of the table is refused to all but cluster
// admins, that a request is judged by the bytes which the server then reads, that
// what cannot be found out is a refusal, and that a refusal says why, and which
// role may.
//
// It must not serve a route, read flags, or know the store.
package access
