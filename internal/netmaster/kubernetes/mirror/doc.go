// Package mirror is a copy of some kinds of objects of a Kubernetes API server, kept by
// watches. It guarantees that it knows whether it is complete up to a resource version:
// when each kind has shown that version by a list, an event or a bookmark. It lists kinds
// that lag, once for all callers that wait. It must not interpret objects or write
// anything. It is called by the Kubernetes controller, and for its clients (NewClient) by all
// that ask an API server. Start with Mirror;
// docs/design/kubernetes.md explains how it stays in step.
package mirror
