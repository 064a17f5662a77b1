// Package ebpf is the driver on the kernel alone: TC programs (bpf/) on containers' veths,
// one VXLAN device and the uplink. It guarantees that the data plane keeps forwarding
// without the process, from pinned programs, links and maps, and that a new process takes
// over without losing a packet or a connection. It must not change anything outside its pin
// directory, its VXLAN device and its own attachments, or turn off offloads. It is called
// by netplugin, by benchmarks and by test clusters. Start with Driver, the facade;
// datapath.go has its parts, and docs/design/ebpf-datapath.md explains them.
package ebpf
