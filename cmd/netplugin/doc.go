// Command netplugin is the host agent of Contiv: it keeps the host's data plane
// as the cluster's store says, and attaches containers for their runtimes. It
// wires flags to internal/netplugin/agent, the etcd store and a driver. See
// docs/user/netplugin.md.
package main
