// Package cni is the CNI plugin (specification 1.1 and older): it passes a runtime's verb
// and configuration to netplugin's socket, and the answer to the runtime. It guarantees an
// answer on stdout in the specification's terms, and that DEL succeeds without netplugin:
// the deletion is spooled and replayed. It must not touch namespaces, the store or
// netmaster, or decode configurations, which would slow each start. It is called by
// contivk8s, and in netplugin by the packages server and mesos. Start with Run.
package cni
