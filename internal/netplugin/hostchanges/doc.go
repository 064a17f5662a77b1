// Package hostchanges remembers the changes of a host's own networking (interfaces on infra
// networks, routes, the forwarding mode) since a netmaster last answered, and which of them
// are rolled back. It guarantees that both survive a restart, in a file of netplugin's
// state directory. It must not change the host, or decide when something is rolled back:
// the agent does. It is called by netplugin's agent, and by the parts that make such
// changes and leave out what is rolled back: attachment, fabric, hoststack and state
// mirror. Start with History.
package hostchanges
