// Command bandwidth measures what net profiles make of traffic on driver ebpf, or with
// -driver ovs on Open vSwitch in user space: TCP of one and of eight streams with the
// congestion control set on the socket, UDP beyond the limit, how long packets wait, how
// evenly eight streams share over ten seconds, in both directions, from 1 Mbit/s to
// 1 Gbit/s, there beside what passes without a profile; two containers with different
// profiles at once; and, in pairs, two without a profile where nobody has one and beside
// two that have. It prints Markdown and says of each figure whether it is within what issue
// 16 wants. A run takes some six minutes; -profiles and -rows pick some, and -repeat
// measures each several times; -stamped each once more by earliest departure time, for which
// the kernel needs fq. It needs root, builds namespaces and a pin directory or a
// switch of its own, and removes them.
package main
