// Package statemirror mirrors the part of the cluster's store that a host needs (State),
// compiles it to the host's desired state, and knows the host's own part of it: egress
// (Egress, PrivateAddresses) and the addresses of the control plane (ControlPlane).
// SyncStatus says what the data plane made of it.
//
// State joins its parts; docs/design/store.md lists them. Each part owns its state and says
// so. StoreGuard decides by a table of transitions whether the store is followed.
//
// It guarantees: there is no desired state before the first complete snapshot. While the
// store is away, empty, older or another one, the last desired state stays (freeze), and
// errors and conditions say why. A record that cannot be read affects its own object only.
//
// It must not write to the store, ask a netmaster, or know how containers are attached:
// its caller gives it what it needs of attachments.
package statemirror
