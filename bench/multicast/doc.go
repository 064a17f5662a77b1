// Command multicast measures what it takes to send to a group of 1, 4 and 16 containers on
// the sender's host, in ARP mode proxy, on driver ebpf and on Open vSwitch in user space: how
// many copies come to the members' interfaces in a second while the sender sends as fast as
// it may. Beside each, in turn with it, the same datagrams sent to each member by unicast, and
// to the group on a Linux bridge with snooping. It prints Markdown: medians, and the medians
// of the ratios of neighbors. A run takes some two minutes. It needs root, builds namespaces
// of its own, and removes them.
//
// It must not run netplugin: the driver is told the members, so what joining costs is not in
// the figures.
package main
