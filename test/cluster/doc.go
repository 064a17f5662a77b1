// Package cluster tests a control plane of three netmasters and five agents on
// the reference driver, in one process, on a store in memory, an embedded etcd,
// an etcd process or a Consul, while faults are made: netmasters, agents and the
// store are killed, stopped and started again, connections are cut, stalled, or
// carry only questions, revisions are compacted away, the store's disk is slow,
// fails or is full. A seed decides what clients ask for, and which faults come in
// which order.
//
// It guarantees that what clients see of each object is linearizable, with
// requests whose outcome nobody knows taken for what may happen at any later
// moment, that a write which was acknowledged is there at the end, and that no
// address, tag, number or identity is given twice while it is held: by what
// clients are answered, and by the store's rows after each of its transactions.
// Netmasters that break these promises on purpose are found out.
//
// It must not judge how fast anything is.
package cluster
