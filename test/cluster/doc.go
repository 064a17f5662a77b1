// Package cluster tests a control plane of three netmasters and five agents on the
// reference driver in one process, while it injects faults into processes, connections,
// disks and clocks. It guarantees that each object is linearizable for clients, that
// acknowledged writes stay, and that no address, tag, number or identity is assigned twice.
// It detects netmasters that break this on purpose. It must not judge how fast anything is.
// It is called by `make test-cluster` and, for a short run, `make test-lab`. Start with
// TestCluster; docs/design/cluster-tests.md explains it.
package cluster
