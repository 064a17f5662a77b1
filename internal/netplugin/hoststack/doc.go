// Package hoststack makes the host's own network stack the other side of the containers'
// egress (desired.Private). It sets the address of the host's interface and the routes to
// the virtual addresses of services. In nftables it makes masquerade, published ports, name
// service, the service frontends, and exceptions from a firewall that drops forwarded
// packets by default. It reserves published ports by sockets, and relays connections to
// them at ::1. It also protects the host's connection tracking table from containers that
// fill it.
//
// It guarantees that everything it makes is recognisable as ours: the interface's own
// addresses and routes, the tables contiv, contiv-services and contiv-guard, and rules with
// the comment contiv. A restarted process finds them again, and they are deleted when no
// longer wanted. Objects of others stay as they are. Connections survive every change that
// does not concern them.
//
// It must not know tenants, policies or data planes, and must not make the interface: the
// driver does.
package hoststack
