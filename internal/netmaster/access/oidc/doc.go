// Package oidc accepts ID tokens of an OpenID Connect issuer, and gives their bearers the
// roles of their groups. Package go-oidc does discovery, keys and signatures. It guarantees
// that only unexpired tokens for our client id count, signed with a published key by an
// asymmetric algorithm. While the issuer is away they get 503. Clients cannot make it ask
// the issuer too often. It must not know what a role may do, or ask users for anything. It
// is called by cmd/netmaster, which gives it to package access. Start with Verifier.
package oidc
