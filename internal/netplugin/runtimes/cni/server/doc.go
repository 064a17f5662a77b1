// Package server is netplugin's end of the CNI plugin: it decodes configurations and
// CNI_ARGS, calls an attach.Service, and encodes the result for the version asked for.
// Install places the plugin and its configuration for runtimes. It guarantees that a
// runtime sees each installed file old or new, and that it places nothing where another
// network's configuration comes first. It must not touch namespaces, the store or
// netmaster, or files other than contivk8s and ConfFile. It is called by cmd/netplugin, and
// by the adapter for Mesos. Start with Handler.
package server
