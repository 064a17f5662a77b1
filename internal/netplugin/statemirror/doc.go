// Package statemirror mirrors the part of the store that a host needs, compiles it to the
// host's desired state, and finds the control plane's addresses. It guarantees no desired
// state before the first complete snapshot. While the store is away, empty, older or another
// one, the last desired state stays. An unreadable record affects its own object only. It
// must not write to the store, ask a netmaster, or know how containers are attached. It is
// called by netplugin's agent, attachment, hostsync and observer. Start with State, whose
// parts docs/design/store.md lists.
package statemirror
