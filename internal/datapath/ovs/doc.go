// Package ovs is the driver on Open vSwitch, on the kernel's datapath and on the one in
// user space: it makes one bridge match a desired.Host. It guarantees that a packet sees
// either the old or the new policy, that a port without flows drops everything, and that a
// restarted agent changes only what differs. It must not decide policy, or touch bridges,
// ports and flows without its mark. It is called by netplugin and by benchmarks. Start with
// Driver, the facade, in ovs.go; docs/design/ovs-pipeline.md explains its parts and the
// flows.
package ovs
