// Package rig is a host with a data plane and containers, for benches that need no
// cluster: a network namespace with driver ebpf or Open vSwitch in user space, and one for
// each container.
//
// It guarantees that nothing of it is left after Close: namespaces, processes, pinned maps.
//
// It must not run netplugin or netmaster, nor change the machine's own network.
package rig
