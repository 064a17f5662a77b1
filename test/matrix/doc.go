// Package matrix runs one scenario on many clusters: each row is a cluster with another
// runtime, security, store, data plane, forwarding mode, kind of network, address family,
// kind of policy and environment of its hosts, such that all pairs of them occur, and all
// triples of runtime, security and data plane.
//
// At every step netctl status, doctor, /healthz of the hosts and the alerts of a real
// Prometheus are compared with what probes see.
//
// It guarantees that every row passes, or is named in missing.txt with what is missing, and
// that a row which passes although it is named there fails.
//
// It must not judge times or losses beyond "it works": other suites do. `make test-matrix`
// runs it; begin with rows.go (which clusters) and scenario_test.go (what happens on each).
package matrix
