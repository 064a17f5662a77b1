// Command datapath measures the path of a packet through the eBPF driver, on one host and
// on two, beside veth pairs, Linux and Docker bridges, the kernel's VXLAN device and driver
// ovs. It also measures many rules and endpoints, CNI ADD, and netplugin's memory. All
// paths that it compares are measured in one run, in turn, by the same code on the same
// processors. It changes nothing outside its own namespaces, and removes what it built,
// also when interrupted. `make bench-datapath` runs it; bench/README.md lists its sections.
// Start with execute.
package main
