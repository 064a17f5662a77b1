// Command multicast measures the cost of sending to a group of 1, 4 and 16 containers on
// the sender's host, in ARP mode proxy, on driver ebpf and on Open vSwitch in user space:
// how many copies reach the members' interfaces in a second while the sender sends as fast
// as it can. Alternately it sends the same datagrams to each member by unicast, and to the
// group on a Linux bridge with snooping. It prints Markdown: medians, and the medians of
// the ratios of adjacent samples. A run takes some two minutes. It needs root, makes its
// own namespaces, and removes them.
//
// It must not run netplugin: it gives the driver the members, so the figures exclude the
// cost of joining.
package main
