// Package attach is the one seam to orchestrators: what they ask for is a
// Request to attach a container's interface to a network of this host, what they
// tell of containers is a Fact, and the Service takes both. Beside these are the
// Service's client over netplugin's unix socket, and the spool that holds
// deletions while netplugin is down. Adapters (cni, libnetwork) translate their
// orchestrator's words into these; containers have no other way in.
//
// It guarantees that errors keep their kind (model.ErrInvalid and so on) across
// the socket, and that the client starts fast: it speaks HTTP/1.0 itself and
// links neither net/http nor crypto/tls.
//
// It must not know any orchestrator, and must not touch namespaces: plumb does.
package attach
