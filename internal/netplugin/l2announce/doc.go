// Package l2announce answers ARP and neighbour discovery for addresses of load
// balancers, on the interfaces of this host that have an address of their subnet.
//
// It guarantees that it answers for an address only while it was told to, and for no
// longer than model.AnswerFor after it asked: by its own clock, whatever becomes of who
// told it. It announces an address that it has got to all neighbours.
//
// Besides, it announces the endpoints of this host to VLAN networks (Announcer).
//
// It must not know services, nor who decides which host has an address.
package l2announce
