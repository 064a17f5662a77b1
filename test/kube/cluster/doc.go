// Package cluster runs Kubernetes for tests on one machine. Start runs the part that
// keeps objects, an etcd and an API server, where a pod stays as it is written and a
// namespace gets no service account; Schedule adds the controllers and the scheduler.
// StartNodes runs a whole cluster: all that, netmaster, and nodes with netplugin,
// containerd and a kubelet, on the hosts of a lab.
//
// It guarantees that all listen on loopback, or in the lab's network namespaces, which
// lead nowhere else; that no image is pulled and no setting of the machine is changed;
// that everything is kept below the directories that it is given, but for nodes' control
// groups; and that Close ends what it started and waits for it. All ends too when the
// test's process is killed: control groups without processes are left then.
//
// It must not be imported by anything but tests and benchmarks.
package cluster
