// Package cluster tests a control plane of three netmasters and five agents on the
// reference driver, in one process, on a store in memory, an embedded etcd, an etcd process
// or a Consul. Meanwhile it injects faults: it kills, stops and restarts netmasters, agents
// and the store, cuts, stalls or half-closes connections, compacts revisions, and makes the
// store's disk slow, failing or full. A seed decides the clients' requests and the order of
// faults.
//
// It guarantees that what clients see of each object is linearizable, where a request of
// unknown outcome may take effect at any later moment; that acknowledged writes are there
// at the end; and that no address, tag, number or identity is assigned twice at a time, by
// the answers to clients and by the store's rows after each of its transactions. It detects
// netmasters that break these promises on purpose.
//
// It must not judge how fast anything is.
package cluster
