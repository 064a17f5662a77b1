// Package driver is the interface to a host's data plane: Apply makes the host match a
// desired.Host, reports tell the result, and monitors stream events. It guarantees one
// meaning of policy for all drivers: package conformance compares each with the reference.
// It must not know where a desired.Host comes from: no store, no API. It is called by
// netplugin, and implemented by ebpf, ovs and reference. Start with Driver.
package driver
