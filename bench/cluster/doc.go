// Command cluster measures clusters in a lab: netmaster on a real etcd, hosts with
// real data planes (Open vSwitch unless -driver names another), containers attached by
// the CNI library. Its sections change and labels measure compile and a driver alone.
//
// It guarantees that each number it writes stands beside the machine, the
// command and the date, and that 1.x's number for the same thing, where one is
// known, stands beside it.
//
// It must not measure anything outside the lab's own namespaces.
package main
