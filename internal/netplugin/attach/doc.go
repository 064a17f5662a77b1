// Package attach is the interface between orchestrators and netplugin: requests to attach
// containers, facts about containers, the Service that takes both, its client on a unix
// socket, and a spool of deletions. It guarantees that errors keep their kind across the
// socket, and that the client starts fast, without net/http and crypto/tls. It must not
// know any orchestrator, or touch namespaces. It is called by the runtimes' adapters and
// netctl, and implemented by package attachment. Start with Service.
package attach
