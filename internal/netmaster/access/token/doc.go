// Package token keeps the tokens that people and programs are let in by, in the
// cluster's store.
//
// It guarantees that a token's secret is told once, to who has it made, and is
// nowhere else: the store has a hash of it; that a token which was revoked, at
// whichever netmaster, or is over, lets nobody in any more; that how long a
// comparison takes tells nothing of a secret; and that what is no token is refused
// without the store being asked.
//
// It must not decide who may have one made, nor what a role may do.
package token
