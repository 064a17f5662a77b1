// Package cni is the plugin of the Container Network Interface (specification 1.1 and the
// older versions that libcni knows). It passes a runtime's verb and configuration to
// netplugin over its unix socket, and netplugin's answer to the runtime. Package server, in
// netplugin, interprets them.
//
// It guarantees that every invocation is answered in the specification's terms on stdout,
// and that DEL succeeds with netplugin down: the deletion is spooled, and netplugin replays
// it.
//
// It must not touch namespaces, the store or netmaster: netplugin does. Nor must it decode
// configurations, which netplugin decodes: runtimes start the plugin for every verb, and
// each new process would have to build the decoder's tables of every type. A test in
// cmd/contivk8s holds the list of packages that it links.
package cni
