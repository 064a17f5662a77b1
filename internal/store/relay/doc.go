// Package relay hands a store's mirrors on: Hub at a replica of netmaster, over the
// batches that its Follower gets, and Reader at an agent, which follows a Hub in place of
// the store and goes back to the store when none is there.
//
// It guarantees what Store.Mirror promises to who mirrors through a Reader, whatever
// becomes of hubs and connections: a list that is as fresh as the store's own, then every
// commit that touched the prefixes, whole and in order; a hub that has not been as fresh
// as the store for Patience is left. A Hub keeps nothing for a client but what it has not
// sent yet, which is bounded: who does not read is cut off, and lists anew.
//
// It must not know what rows mean, who may ask, or what carries a stream.
package relay
