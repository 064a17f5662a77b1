// Package slice tests the whole of Contiv on simulated hosts, from the command line to the
// packet: real data planes, a netmaster on a real etcd, netplugins, and containers attached
// by the CNI library. It guarantees that a test leaves no namespace, process or file
// behind. A test that calls shared may run beside other clusters; all others need the
// machine for themselves. It must not be imported, or touch the machine's own network. It
// needs root and the build tag integration. It is called by `make test-lab` and `make
// test-full`. Start with TestFirstPacketArrives.
package slice
