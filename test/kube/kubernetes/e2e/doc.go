// Package e2e is Kubernetes' own test suite for networks (sig-network) of the version that
// the module pins. It guarantees that its test is upstream's program e2e.test with those
// specs alone, which compiles in a third of the time. It must not contain tests of ours. It
// is called by test/kube/upstream, for which tools/kube.sh builds it. Start with
// e2e_test.go.
package e2e
