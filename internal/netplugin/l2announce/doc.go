// Package l2announce answers ARP and neighbour discovery for load balancers' addresses
// (L2Announcer), and announces this host's endpoints to VLAN networks (Announcer). It
// guarantees that it answers for an address only while it is assigned to this host, and by
// its own clock no longer than model.L2LeaseTime after it last asked. It must not know
// services, or who decides which host has an address. It is called by netplugin's agent.
// Start with L2Announcer.
package l2announce
