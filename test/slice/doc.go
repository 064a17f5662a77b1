// Package slice tests the whole of Contiv, from the command line to the packet:
// clusters of simulated hosts with real data planes (eBPF, Open vSwitch, and
// both in one cluster), netmaster on a real etcd, netplugin, and containers
// attached by the CNI library. The tests carry the build tag integration and
// need root, openvswitch-switch, etcd-server and ethtool.
//
// It guarantees that a test leaves no namespace, process or file behind, and
// that each prints the figures it measured.
//
// It must not be imported, and must not touch the machine's own network.
package slice
