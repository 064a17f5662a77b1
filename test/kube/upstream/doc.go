// Package upstream runs Kubernetes' own network tests, e2e.test of the pinned version, on a
// cluster of test/kube/cluster, and keeps the result of each spec in test/kube/reports. It
// guarantees that a run fails if a spec fails that is not in expected.json, or one passes
// that is. Each report has the commit, the date and a sum of the code, and
// TestReportsAreOfThisCode fails when that code has changed. It must not know any spec by
// itself, or be imported outside of tests. It is called by `make test-kube`. Start with
// TestSuite.
package upstream
