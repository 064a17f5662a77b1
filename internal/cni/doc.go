// Package cni translates the verbs of the Container Network Interface
// (specification 1.1 and the older versions that libcni knows) into requests
// to netplugin over its unix socket.
//
// It guarantees that whatever a runtime sends is answered in the
// specification's terms on stdout, and that DEL succeeds with netplugin down:
// the deletion is spooled, and netplugin replays it.
//
// It must not touch namespaces, the store or netmaster: netplugin does. It must
// stay small and quick to start, since runtimes start it for every verb; a test
// in cmd/contivk8s holds the list of what it links.
package cni
