// Package hostservices serves the host's own processes and clients outside beside any driver:
// eBPF programs at the cgroup connect sockets to backends, and programs at interfaces redirect
// packets of clients to the data plane. It guarantees that sockets of other network namespaces
// are left alone, and that pinned programs go on without the process. It must not choose
// policies or read desired state. It is called by hostsync and test clusters. Start with
// Sockets and Clients.
package hostservices
