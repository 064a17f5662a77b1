// Package translate turns Kubernetes objects into values of model: pods' networks, groups
// and attributes, rules of NetworkPolicy and ClusterNetworkPolicy, and services. It
// guarantees that what it cannot translate exactly fails closed: an allow rule allows less,
// a deny or pass rule denies everything. Each such case is a Problem that names the field.
// It must not send requests, or rely on the API server's validation: it is pure. It is
// called by the Kubernetes controller, the status report and cmd/netmaster. Start with
// Cluster for policies, Addressing for services and PlacementOf for pods.
package translate
