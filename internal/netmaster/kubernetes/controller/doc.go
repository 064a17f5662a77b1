// Package controller keeps the cluster's store in step with a Kubernetes API server:
// namespaces' labels and policies, in each tenant that has pods they could select (Keeper),
// and services, their slices, nodes and the addresses of load balancers (Services). The
// leader among the netmasters runs it, through use cases of control under its fence, and
// writes differences only. Package translate interprets the objects. The keeper's user gets
// a report of each object that cannot be realised as written.
package controller
