// Package oidc lets bearers of an OpenID Connect issuer's ID tokens in, with the
// roles that their groups have.
//
// It guarantees that only tokens count which the issuer signed with a key that it
// shows, by an algorithm with a key of its own (no "none", no shared secret), for
// our client id, and that are not over; that an issuer which is away, at the start
// or later, is told as that (503) of tokens which need it, and lets nobody in; and
// that whoever sends tokens cannot have it asked more often than a bound.
//
// It must not know what a role may do, nor ask users for anything: they bring a
// token that another program got. Discovery, keys and signatures are go-oidc's.
package oidc
