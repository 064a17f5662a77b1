// Package reference is the reference data plane: a driver in memory that executes a
// desired.Host on packets, and a fabric that joins several hosts. It guarantees that an
// answer depends only on what was applied and which packets were sent before, and that a
// change costs only its own size. It must not know a real data plane, the store, or files.
// It does not model IGMP and MLD messages, which no policy judges. It is called by the
// conformance suite, test clusters, benchmarks and netplugin's driver "fake". Start with
// Driver.
package reference
