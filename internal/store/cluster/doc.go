// Package cluster keeps under leases in the store who takes part in the control plane:
// leader election, the service registry, where processes listen, and what monitors ask of
// agents. It guarantees that an entry ends with its process and returns after the store
// lost it, and that a leader's term ends, at the latest at its next write, when another
// begins (store.Fence). It must not know what a leader does, or what services serve. It is
// called by netmaster, control and netplugin. Start with Candidate and Registration.
package cluster
