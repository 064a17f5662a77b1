// Package clusterstore has the flags by which netmaster and netplugin find the etcd or
// Consul with the cluster's state, and opens it. It guarantees that both programs accept
// the same spellings, also those of 1.x, and refuse the same ones. It must not start a
// store: the embedded etcd belongs to netmaster. It is called by cmd/netmaster and
// cmd/netplugin. Start with Flags.
package clusterstore
