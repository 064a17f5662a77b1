// Package controller keeps the cluster's store in step with what an API server of
// Kubernetes holds: namespaces' labels, policies, in each tenant that has pods they
// could select (Keeper), services, their slices, nodes and the addresses of load
// balancers (Services). The leader among the netmasters does it, by use-cases of control
// under its fence, and writes differences only. What the objects mean package translate
// says; what an object asks for and cannot be had is told to the keeper's user.
package controller
