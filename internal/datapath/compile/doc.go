// Package compile turns the rows of the cluster's store into the desired state of one host,
// and lists the problems that it met. It guarantees that the result depends on the present
// rows only, never on their history, that a missing reference denies traffic, and that a
// change costs nothing for objects that it does not concern. It must not do I/O, know keys
// of the store, or know how any data plane works. It is called by netplugin's state mirror,
// which enters the rows, and by the conformance suite and benchmarks. Start with
// Compiler.order, the list of its nodes; docs/design/compile.md draws it.
package compile
