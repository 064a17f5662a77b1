// Package stats is what all benchmark programs share: their main function, the head and
// tables of their reports, the comparison of series that were measured in turn, and what
// they were measured on. It guarantees the same interval for the same values, and a text, at
// least "unknown", for what it cannot find out. It must not be imported except by benchmarks
// and by tests that write reports. It is called by the programs in bench and by a few tests.
// Start with Main, Compare and Run.
package stats
