// Package compile turns the rows of the cluster into the desired state of one host: model
// values and a host's name in, a desired.Host and the problems met out.
//
// It guarantees:
//   - The desired state and the problems depend on the present rows only, never on the
//     order or number of changes that led to them.
//   - A missing reference compiles to something that denies, plus a Problem.
//   - The cost of a change does not grow with objects that it does not concern.
//   - A desired state that was returned never changes.
//
// It must not do I/O, know keys or codecs of the store, or know how any data plane works.
//
// Callers are netplugin's state mirror, which enters the store's rows, and the tests of the
// data planes.
//
// A Compiler is a graph of nodes. Start at Compiler.order in compiler.go: the nodes in the
// order in which Compile runs them. The comment of each node's type says what it takes and
// gives; objects.go has the objects that they share, with the node that writes each field.
// The graph is drawn in docs/design/compile.md.
package compile
