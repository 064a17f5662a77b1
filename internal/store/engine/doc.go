// Package engine implements transactions over any store.Backend: isolation, retries and
// fences. It guarantees that commits are serializable in the order of their revisions, that
// a scope's generation protects lists against phantoms, and that a list which competes with
// writers succeeds in bounded time. It must not know which rows there are, or which store
// it uses. It is called by the stores etcd, consul and memory, whose Update it is. Start
// with Engine.
package engine
