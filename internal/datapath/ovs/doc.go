// Package ovs is the data plane on Open vSwitch: it makes one bridge forward
// and police as a desired.Host says, on the kernel's datapath and on the one in
// user space.
//
// It guarantees that a packet sees either the old or the new policy and never a
// part of one (flows change in one atomic bundle), that a port without flows
// drops everything, that a restarted agent finds its flows by reading them back
// and changes only what differs, and that bridges, ports and flows that do not
// carry its mark are left alone.
//
// Driver is the facade. It owns the lock, the goroutines and the order of an Apply. Its
// parts own the state, one subject each: connections, bridge, underlay, bandwidth, ports,
// flows and others.
//
// It must not decide policy, nor know where a picture comes from.
// docs/design/ovs-pipeline.md describes the flows.
package ovs
