// Package hostservices serves the sockets of the host's own processes: one that asks a
// service is connected to a backend by eBPF programs at the cgroup, beside any driver. It
// guarantees that sockets of other network namespaces are left alone, and that sockets are
// served without the process, from pinned programs and maps. It must not choose policies or
// read desired state. It is called by hostsync and test clusters. Start with Sockets.
package hostservices
