// Package translate turns Kubernetes objects into values of model: the tenant, network and
// group of a pod and its policy attributes, the rules of NetworkPolicy v1 and
// ClusterNetworkPolicy v1alpha2, and the rows of cluster services from Services,
// EndpointSlices, Nodes and ServiceCIDRs.
//
// It is pure: the same objects give the same values, and it sends no requests. It does not
// rely on the API server's validation. What it cannot translate exactly it translates
// closed, never open: an allow rule then allows less, a deny or pass rule denies
// everything, and a policy with an unknown subject isolates every pod that could be meant.
// Each such place is a Problem, which names the field, for events and conditions.
//
// docs/design/kubernetes.md has the tables that it implements.
package translate
