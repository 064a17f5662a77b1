// Package oidc accepts ID tokens of an OpenID Connect issuer, and gives their bearers the
// roles of their groups.
//
// It guarantees:
//   - Only tokens count that the issuer signed with a published key, by an asymmetric
//     algorithm (no "none", no shared secret), for our client id, and that have not expired.
//   - While the issuer is away, at the start or later, tokens that need it are refused with
//     503.
//   - Clients cannot make it ask the issuer more often than a bound.
//
// It must not know what a role may do, nor ask users for anything: they bring a token that
// another program got. Discovery, keys and signatures are go-oidc's.
package oidc
