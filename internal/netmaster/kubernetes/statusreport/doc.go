// Package statusreport writes to Kubernetes what became of its objects: events for
// problems, conditions of policies and of Contiv's objects, and load balancers' addresses.
// It guarantees one event for one problem of an object, from whichever replica and however
// often it is reported, at most a few requests a second, and that its callers never wait.
// It must not decide what to report. It is called by cmd/netmaster, with the results of the
// Kubernetes controller. Start with Reporter.
package statusreport
