// Package e2e is Kubernetes' own test suite, as far as it concerns networks
// (sig-network), of the version that the module pins: its test is upstream's program
// e2e.test with those specs alone, which compiles in a third of the time.
package e2e
