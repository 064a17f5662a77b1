// Command paired runs a benchmark of this repository at two commits in turn, and compares
// each figure of the newer with the older. The speed of a machine changes from hour to
// hour, so separate runs would compare the hours. Both commits are built before the first
// turn, and the order alternates. Nothing else may run beside it. Start with execute.
package main
