// Command multicast measures the cost of sending to a multicast group of 1, 4 and 16
// containers on the sender's host, on driver ebpf and on Open vSwitch in user space. It
// measures unicast to each member and a Linux bridge with snooping beside it. It prints
// medians in Markdown. A run takes some two minutes and needs root. It makes its own
// namespaces, and removes them. It does not run netplugin: it gives the driver the members,
// so the figures exclude the cost of joining. Start with execute.
package main
