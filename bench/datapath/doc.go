// Command datapath measures what the eBPF driver makes of a packet's way: one
// host and two, beside a bare veth pair, Linux' and Docker's bridges, the
// kernel's VXLAN device and the ovs driver; how much 10,000 rules and 10,000
// remote endpoints cost; CNI ADD; and netplugin's memory. All that is compared
// is measured in one run, in turn, in rounds; the ratios are medians of the
// rounds' ratios. See bench/README.md.
//
// It guarantees that traffic of every way is made by the same code on the same
// processors, and that it takes away what it built, when interrupted too.
//
// It must not touch links, rules or sysctls outside its own namespaces.
package main
