// Package control holds the use-cases: what a user or a runtime wants done to
// the cluster with validated values, each as one transaction that checks references,
// allocates and commits; the view that reads are answered from; and the tasks
// of the leader (garbage collection).
//
// It guarantees: a refused request leaves the store as it was; two objects
// never share an address, tag, number or name, whatever runs in parallel on
// however many replicas; references never dangle; an identity number is not
// used again while anything has it; reads hold every commit made before them.
//
// It must not know wire formats or orchestrators, and keeps no truth of its
// own: losing the process loses nothing. docs/design/control.md explains how.
package control
