// Package pipeline turns parts of a desired.Host into OpenFlow flows, by pure functions. It
// guarantees that each object (network, port, remote endpoint, policy set) has its own
// flows, so that a change costs only those, and that a packet which matches no object's
// flow is dropped. It must not talk to a switch. It is called by the Open vSwitch driver.
// Start with stages.go, which lists the tables; docs/design/ovs-pipeline.md explains them.
package pipeline
