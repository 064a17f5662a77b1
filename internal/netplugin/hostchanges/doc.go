// Package hostchanges remembers the changes of a host's own networking (interfaces on infra
// networks, routes, the forwarding mode) since a netmaster last answered it, and which of
// them are rolled back. A file in netplugin's state directory keeps both across restarts.
//
// The parts that make such changes note them, and leave out what is rolled back. The agent
// decides what is rolled back.
//
// It must not change the host, or decide when something is rolled back.
package hostchanges
