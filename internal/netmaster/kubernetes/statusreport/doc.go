// Package statusreport reports to Kubernetes what became of its objects. An object that the
// cluster's store does not have as written gets an event. A ClusterNetworkPolicy gets a
// condition, also when all is well. A Service gets its load balancer's addresses in its
// status.
//
// It guarantees that one problem of one object is one event, however often and by whichever
// replica it is reported; that it makes at most a few requests a second; and that it never
// delays its callers.
package statusreport
