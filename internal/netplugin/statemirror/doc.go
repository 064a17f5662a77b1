// Package statemirror is what a host should look like: it mirrors what concerns the
// host of the cluster's store, compiles it, and knows the host's own part, the
// way out and where the control plane is; and SyncStatus is what came of it.
//
// It guarantees: there is no picture before the first complete snapshot; with
// the store away, empty, older or another one, the last picture stays and
// everybody who asks is told why; a record that cannot be read stops nothing but
// what it described.
//
// It must not write to the store, ask a netmaster, or know how containers are
// attached: what it needs of attachments it is given.
package statemirror
