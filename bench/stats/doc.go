// Package stats compares series of measurements that were taken in turn, and describes
// what they were measured on: the machine, its load, the processor time, the code. It
// guarantees the same interval for the same values, and a text, at least "unknown", for
// what it cannot find out. It must not be imported except by benchmarks and by tests that
// write reports. It is called by the programs in bench and by a few tests. Start with
// Compare and Processor.
package stats
