// Package attach is the request and the result of attaching a container's
// interface to a network on this host, the service that answers such requests,
// its client over netplugin's unix socket, and the spool that holds deletions
// while netplugin is down. Orchestrator adapters (cni, libnetwork, mesos)
// translate their verbs into these.
//
// It guarantees that errors keep their kind (model.ErrInvalid and so on) across
// the socket, and that the client starts fast: it speaks HTTP/1.0 itself and
// links neither net/http nor crypto/tls.
//
// It must not know any orchestrator, and must not touch namespaces: plumb does.
package attach
