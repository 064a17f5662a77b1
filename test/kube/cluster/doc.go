// Package cluster runs Kubernetes for tests on one machine. So far there are no nodes.
// Start runs the part that keeps objects, an etcd and an API server, where a pod stays as
// it is written and a namespace gets no service account; Schedule adds the controllers
// and the scheduler. Pods get no tokens of service accounts.
//
// It guarantees that all listen on loopback addresses only, that everything is kept
// below the directory that it is given, and that Close ends what it started
// and waits for it; all ends too when the test's process is killed.
//
// It must not be imported by anything but tests.
package cluster
