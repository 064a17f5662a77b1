// Package kube tests Contiv with a real Kubernetes, which is built from its modules
// (test/kube/kubernetes) and started by test/kube/cluster. It guarantees that nothing
// stands in for Kubernetes: tests use the API server that users run. They are skipped where
// CONTIV_KUBE names no built Kubernetes. It must not contain anything but tests. It is
// called by `make test-kube`, which builds one. Start with TestNamespacesAndPoliciesReachTheStore.
package kube
