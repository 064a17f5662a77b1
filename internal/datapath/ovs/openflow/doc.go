// Package openflow speaks the part of OpenFlow 1.4 with Open vSwitch's extensions that
// package pipeline uses: structured flows with one canonical text form (the one of
// ovs-ofctl) and one wire form, and a connection to a bridge's management socket with
// atomic bundles and flow dumps.
//
// It guarantees that encoding, decoding, printing and parsing form round trips, that a
// decoder given foreign bytes returns an error and never panics, and that Commit is all or
// nothing.
//
// It must not know what the flows are for, and imports nothing of this module.
//
// Sources: OpenFlow Switch Specification 1.4.1 (ONF TS-024), ovs-fields(7) and
// ovs-actions(7) of Open vSwitch 3.1 for the Nicira extensions.
package openflow
