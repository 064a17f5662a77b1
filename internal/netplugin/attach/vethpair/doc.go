// Package vethpair creates, configures, checks and deletes the veth pairs between
// containers and the host's data plane. It guarantees that a later process recognizes a
// pair by the name and alias of its host side, that deleting an absent pair succeeds, that
// a failed creation leaves nothing, and that calls for different containers run in
// parallel. It must not know the store, the data plane or who asked, or run programs. It is
// called by netplugin's attachment, agent, observer and state mirror. Start with Create.
package vethpair
