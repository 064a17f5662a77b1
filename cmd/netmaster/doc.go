// Command netmaster is the API server and controller of Contiv: it serves the
// REST interface, runs the use-cases on the cluster store, and takes part in
// the election of the replica that does the background work.
//
// It guarantees that a wrong flag stops it with exit code 2 before it touches
// anything, that a store which is away makes it answer 503 and not end, and
// that SIGTERM lets running requests finish.
//
// It must hold wiring only: flags, listeners, the choice of the store.
package main
