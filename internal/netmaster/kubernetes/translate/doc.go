// Package translate says in values of model what objects of Kubernetes mean: where a pod
// belongs and what policies can ask of it, what NetworkPolicy v1 and
// ClusterNetworkPolicy v1alpha2 let through, and what Services, EndpointSlices, Nodes
// and ServiceCIDRs mean for the rows of cluster services.
//
// It is pure: the same objects give the same values, and it asks nobody. It trusts
// no API server to have validated what it reads. What it cannot say exactly it says
// closed, never open: a rule that allows then allows less, one that denies or passes
// denies everything, and a policy whose pods cannot be told shuts all that they could
// be. Each such place is a Problem, which names the field, for events and conditions.
//
// docs/design/kubernetes.md has the tables that this is.
package translate
