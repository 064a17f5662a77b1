// Package conformance tests that a driver enforces policy as the reference data plane does:
// a suite for any driver, topologies and generated policies for it, and the expected
// results. It guarantees the same cases in every run, except for samples, which -seed or
// the commit chooses. They cover all pairs of direction, action, protocol and kind of peer.
// It must not know any driver but the reference, or be imported outside of tests. It is
// called by the tests of the drivers, of compile and of whole clusters. Start with Run.
package conformance
