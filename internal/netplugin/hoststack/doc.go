// Package hoststack configures the host's own network stack for containers: masquerade,
// published ports, service frontends and name service in nftables, routes to services, and
// a guard of the connection tracking table. It guarantees that everything it makes is
// recognizable as ours, also by a restarted process, and that connections survive changes
// that do not concern them. It must not know tenants, policies or data planes, or make the
// interface: the driver does. It is called by netplugin's agent, attachment, fabric and
// state mirror; cmd/netmaster calls Lifelines. Start with Stack and Frontends.
package hoststack
