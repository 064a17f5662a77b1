// Package cluster runs Kubernetes on one machine for tests: Start runs etcd and an API
// server, Schedule adds controllers and the scheduler, and StartNodes runs netmaster and
// nodes with netplugin, containerd and kubelets on a test cluster. It guarantees listeners
// on loopback or in the cluster's namespaces only, files in the given directories only, no
// pulled images, and that Close ends what it started. It must not be imported except by
// tests and benchmarks. It is called by the suites in test/kube, test/matrix and
// benchmarks. Start with Control and Nodes.
package cluster
