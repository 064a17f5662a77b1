// Package token keeps the bearer tokens of people and programs in the cluster's store. It
// guarantees that a secret is returned once, when it is made, and stored as a hash only. A
// revoked or expired token gives no access at any netmaster. The time of a comparison
// reveals nothing. It must not decide who may create a token, or what a role may do. It is
// called by cmd/netmaster, which gives it to package access and the API server. Start with
// Store.
package token
