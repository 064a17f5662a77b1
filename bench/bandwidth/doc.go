// Command bandwidth measures how net profiles limit traffic, on driver ebpf or, with
// -driver ovs, on Open vSwitch in user space. It measures limits from 1 Mbit/s to 1 Gbit/s
// in both directions, beside the rate without a profile:
//   - TCP with one and with eight streams, with the congestion control set on the socket,
//   - UDP beyond the limit,
//   - how long packets wait,
//   - how evenly eight streams share over ten seconds,
//   - two containers with different profiles at once,
//   - pairs of runs of two containers without a profile: with no profile on the host, and
//     beside two containers that have one.
//
// It prints Markdown and says of each figure whether it is within the limits of issue 16. A
// run takes some six minutes; -profiles and -rows select some, -repeat measures each
// several times. It needs root. It makes its own namespaces and its own pin directory
// or switch, and removes them.
package main
