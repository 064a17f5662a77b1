// Package matrix runs one scenario on many clusters, each with another runtime, security,
// store, data plane and environment, in all pairs. At every step it compares status,
// doctor, /healthz and alerts with probes. It guarantees that every row passes, or is named
// in missing.txt with what is missing, and that a named row which passes fails. It must not
// judge times or losses: other suites do. It is called by `make test-matrix` and, for a few
// rows, `make test-lab`. Start with rows.go and scenario_test.go.
package matrix
