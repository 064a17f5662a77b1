// Command cluster measures a whole cluster in a lab: netmaster on a real etcd,
// hosts with real Open vSwitch, containers attached by the CNI library.
//
// It guarantees that each number it writes stands beside the machine, the
// command and the date, and that 1.x's number for the same thing, where one is
// known, stands beside it.
//
// It must not measure anything outside the lab's own namespaces.
package main
