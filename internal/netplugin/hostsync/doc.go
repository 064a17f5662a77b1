// Package hostsync makes the host's own network stack what the desired state and the
// attachments ask for: egress by host-local NAT addresses, published ports, service
// frontends, health check ports, MTUs of tunnels and uplinks. It guarantees that what cannot
// be made is a problem, and that another sync is requested for it. It must not mirror the
// store, or know how containers are attached. It is called by netplugin's agent, attachment
// and observer. Start with Egress.Follow.
package hostsync
