// Package apiserver answers netmaster's HTTP interface: the objects under
// /api/v1, their operational views, the runtimes' requests under /plugin,
// health, metrics and information about the cluster.
//
// It guarantees that a request is parsed into model values before anything
// happens, that no handler runs before the client is authorised for what those values are
// about, that every refusal is a plain sentence with the status code of its
// kind, that 500 means a fault of ours, logged under the id that the answer
// names, and that answers have the shapes of the recorded 1.x exchanges.
//
// It must not decide anything about the objects: validation belongs to model,
// use-cases to control.
package apiserver
