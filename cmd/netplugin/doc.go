// Command netplugin is Contiv's agent on each host: it keeps the data plane in the state
// that the cluster's store describes, and attaches containers for their runtimes. See
// docs/how-to/netplugin.md. It holds wiring only: flags, the store, the driver, and the
// runtimes' sockets around package agent. Start with run in main.go; dataPlanes.go has the
// table of drivers.
package main
