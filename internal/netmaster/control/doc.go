// Package control holds the use-cases: what a user or a runtime wants done to
// the cluster with validated values, each as one transaction that checks references,
// allocates and commits; the view that reads are answered from; and the tasks
// of the leader, such as garbage collection.
//
// It guarantees: a refused request leaves the store as it was; two objects
// never share an address, tag, number or name, whatever runs in parallel on
// however many replicas; references never dangle; an identity number is not
// used again while anything has it; reads hold every commit made before them.
//
// It must not know wire formats or orchestrators, and keeps no truth of its
// own: losing the process loses nothing.
//
// The API server, Kubernetes' and ACI's controllers and cmd/netmaster call it. Start
// reading at Controller, whose fields are the use-cases by subject, then at Committer,
// through which all of them commit, and View, from whose parts they read.
// docs/design/control.md explains how it works.
package control
