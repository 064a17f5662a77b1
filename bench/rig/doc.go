// Package rig is one host with a data plane and containers, for benchmarks that need no
// cluster: network namespaces with driver ebpf or Open vSwitch in user space. It guarantees
// that no namespace, process or pinned map is left after Close. It must not run netplugin
// or netmaster, or change the machine's own network. It is called by the benchmarks
// bandwidth and multicast. Start with Rig.
package rig
