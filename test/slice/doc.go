// Package slice tests the whole of Contiv, from the command line to the packet:
// clusters of simulated hosts with real data planes (eBPF, Open vSwitch, and
// both in one cluster), netmaster on a real etcd, netplugin, and containers
// attached by the CNI library. The tests carry the build tag integration and
// need root, openvswitch-switch, etcd-server and ethtool.
//
// It guarantees that a test leaves no namespace, process or file behind, and
// that each prints the figures it measured.
//
// A test that calls shared may run beside other labs; all others need the machine for
// themselves. CONTIV_TEST_MACHINE=own or shared runs one kind of them.
//
// It must not be imported, and must not touch the machine's own network.
package slice
