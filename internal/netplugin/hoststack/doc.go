// Package hoststack makes the host's own network stack the other side of the
// containers' way out (desired.Private): the address of the host's interface, the
// routes to the virtual addresses of services, and in nftables masquerade,
// published ports, name service, the ways to backends of services that several share
// addresses, and what a firewall's default of dropping what is forwarded would stop. It holds published ports by sockets, and passes on what comes
// to them at ::1. And it guards the host's connection tracking against containers
// that fill it.
//
// It guarantees that everything it makes is recognisable as ours (the interface's
// own addresses and routes, the tables contiv, contiv-services and contiv-guard, rules with the
// comment contiv), is found again after a restart, and goes when nobody wants it;
// what others made stays as it is. Connections survive every change that does not
// concern them.
//
// It must not know tenants, policies or data planes, and must not make the
// interface: the driver does.
package hoststack
