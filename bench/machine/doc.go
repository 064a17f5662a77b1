// Package machine says what machine a benchmark ran on, so that its figures can
// be judged, and what processor time it took.
//
// It guarantees a text, if only "unknown", for what it cannot find out.
//
// It must not be imported but by benchmarks and tests that keep reports.
package machine
