// Command paired runs a benchmark of this repository at two commits, in turn,
// and says what the newer makes of each figure of the older: machines differ by
// half and more from hour to hour, so that two runs after each other compare
// the hours. It guarantees that both commits are built before the first turn
// and that turns alternate in who begins. It must not be run beside other work.
package main
