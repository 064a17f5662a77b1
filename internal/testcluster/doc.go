// Package testcluster builds clusters of simulated hosts on one machine: network
// namespaces joined by Linux bridges (one for traffic between hosts, one for
// VLANs, one for control), each host with a data plane of its own (eBPF, or an Open
// vSwitch) and its own netplugin, a netmaster on a real etcd, and containers attached by the CNI
// library through the contivk8s binary. The demo, the integration tests and the
// benchmarks all stand on it.
//
// A Lab has parts: Network, Store, Masters and Prometheus. The Lab itself attaches containers
// and asks who reaches whom.
//
// It guarantees that everything it makes lies in its own namespaces and under
// its own directory, that namespaces carry the lab's name as prefix, that it
// ends only processes it started or that live in its namespaces, and that Down
// removes what any earlier run of the same lab left, a killed one included.
//
// It must not touch links, routes, filters or sysctls outside its namespaces,
// must not wait by sleeping where a condition can be asked for, and must not be
// imported by anything but cmd/contivlab, tests and benchmarks.
package testcluster
