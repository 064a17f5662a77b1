// Package cluster is who takes part in the control plane, kept in the store
// under leases: the election of a leader, the service registry, where each
// process listens, and what netmasters ask agents to watch.
//
// It guarantees that what a process enters goes when the process does, that it
// is entered again after the store lost it, and that a leader's term ends, at
// the latest at its next write, when another one's begins (store.Fence).
//
// It must not know what a leader does, nor what services serve.
package cluster
