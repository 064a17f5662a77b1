// Package clusterstore has the flags by which netmaster and netplugin find the etcd or the
// Consul with the cluster's state, and opens it. It guarantees that both programs take the
// same spellings, those of 1.x included, and refuse the same ones. It must not start a store:
// the embedded etcd is netmaster's. The callers are cmd/netmaster and cmd/netplugin; start
// reading at Flags.
package clusterstore
