// Command bandwidth measures how net profiles limit traffic on driver ebpf, or with -driver
// ovs on Open vSwitch in user space: TCP and UDP from 1 Mbit/s to 1 Gbit/s in both
// directions, delays, fairness, and containers with different profiles. It prints Markdown
// and says of each figure whether it is within its limit. A run takes some six minutes and
// needs root. It makes its own namespaces and its own pin directory or switch, and removes
// them. Start with execute.
package main
