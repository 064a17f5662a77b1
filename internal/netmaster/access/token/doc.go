// Package token keeps the bearer tokens of people and programs in the cluster's store.
//
// It guarantees that a token's secret is returned once, when it is made, and stored
// nowhere: the store has a hash. A token that was revoked, at any netmaster, or has expired
// gives no access any more. The time of a comparison reveals nothing about a secret. A text
// that is no token is refused without a request to the store.
//
// It must not decide who may have one made, nor what a role may do.
package token
