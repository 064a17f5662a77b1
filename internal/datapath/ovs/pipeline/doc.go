// Package pipeline turns a host's picture into OpenFlow: pure functions from
// the parts of a desired.Host, plus the port numbers that the switch gave, to
// flows.
//
// It guarantees that the flows depend on the arguments only, that every object
// (network, port, remote endpoint, policy set) has its own flows, so that a
// change of one costs its own flows only, and that what is missing drops: no
// table passes a packet that no flow of an object names.
//
// It must not talk to a switch. docs/design/ovs-pipeline.md explains registers,
// zones and tables.
package pipeline
