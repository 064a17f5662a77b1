// Package machine describes the machine on which a benchmark ran, its load, and the
// processor time that the benchmark took. It guarantees a text, at least "unknown", for
// everything that it cannot find out. It must not be imported except by benchmarks and by
// tests that write reports. It is called by the programs in bench and by a few tests. Start
// with Processor.
package machine
