// Package mesos serves the two calls of 1.x's CNI plugin for Mesos, netcontiv, on a unix
// socket of netplugin, as invocations of the CNI plugin. It guarantees that every request
// is answered as in 1.x: CNI 0.2's result, nothing, or its error object. It must not touch
// namespaces, the store or netmaster, or decide anything that package server does not. It
// is called by cmd/netplugin. Start with Handler.
package mesos
