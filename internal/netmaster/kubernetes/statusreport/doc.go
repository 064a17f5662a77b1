// Package statusreport tells Kubernetes what became of its objects: of what the cluster's
// store does not have as it is written an event on the object, of a
// ClusterNetworkPolicy a condition, also when all is well, and in the status of a
// Service the addresses of its load balancer.
//
// It guarantees that one object's one trouble is one event however often it is told
// and by whichever replica, that no more than a few requests a second are made, and
// that it never holds up who tells it.
package statusreport
