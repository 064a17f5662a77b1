// Package ebpf is the driver that needs a kernel and nothing else: TC programs
// on the host side of every container's veth, on one VXLAN device in
// collect-metadata mode, and on the uplink (bpf/ holds their C sources).
//
// It guarantees that the data plane goes on without the process (programs,
// links and maps are pinned below one directory of its own), that a new process
// takes it over without losing a packet or a connection, and that programs,
// devices and filters of others stay as they are.
//
// Driver is the facade. It owns the lock, the goroutines and the events. Its parts (type
// datapath) own the tables and the state, one subject each: ports, networks, endpoints,
// policies, services and others.
//
// It must not change anything outside its pin directory, its VXLAN device
// (recognised by its alias) and its own program attachments, and it must not
// turn off offloads.
package ebpf
