// Package compile turns what the cluster is told to be into what one host has
// to be: model values and a host's name in, a desired.Host and the problems met
// out.
//
// It guarantees that the picture and the problems depend on the present inputs
// only, never on the order or number of changes that led to them; that a
// missing reference compiles to something that denies, plus a Problem; and that
// the cost of a change does not grow with objects that it does not concern.
//
// It must not do I/O, know keys or codecs of the store, or know how any data
// plane works.
package compile
