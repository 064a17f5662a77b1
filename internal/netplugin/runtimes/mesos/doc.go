// Package mesos serves the two calls of 1.x's CNI plugin for Mesos, netcontiv, which
// posts what Mesos' containerizer asks for to a unix socket of netplugin's. They
// become invocations of the CNI plugin (package server), which this version's netcontiv,
// contivk8s under that name, makes itself.
//
// It guarantees that every request is answered as 1.x did: CNI 0.2's result, nothing,
// or its error object.
//
// It must not touch namespaces, the store or netmaster, nor decide anything that the
// CNI plugin's other path does not.
package mesos
