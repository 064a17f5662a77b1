// Package multicast keeps which endpoint of a host is a member of which multicast group,
// from their IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) messages.
// docs/adr/0029-multicast.md has the reasons. It guarantees a bounded table whatever is
// sent, that no message makes it panic, and that a member stays one while it answers, also
// across a restart. It must not judge packets, know drivers or the store, or send endpoints
// anything but queries. It is called by netplugin's agent. Start with Listener.
package multicast
