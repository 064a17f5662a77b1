// Command netmaster is Contiv's API server and controller: it serves the REST interface,
// runs the use cases on the cluster's store, and takes part in the election of the replica
// that does the background work. A wrong flag ends it with exit code 2 before it changes
// anything. Without a store it answers 503 and keeps running. SIGTERM lets requests in
// progress finish. It holds wiring only: flags, listeners, and the choice of the store.
// Start with run in run.go.
package main
