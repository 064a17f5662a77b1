// Package relay passes a store's mirrors on: Hub runs at a replica of netmaster, over the
// batches of its Follower. Reader runs at an agent: it follows a Hub instead of the store,
// and goes back to the store when there is no Hub.
//
// It guarantees to users of a Reader what Store.Mirror promises, whatever happens to hubs
// and connections: a list as fresh as the store's own, then every commit that touched the
// prefixes, whole and in order. A Reader leaves a hub that has not been as fresh as the
// store for Patience. A Hub keeps only a bounded queue of unsent messages for a client: a
// client that does not read is cut off, and lists again.
//
// It must not know what rows mean, who may ask, or what carries a stream.
package relay
