// Package peerhealth asks other hosts over the tunnels' path whether they are alive, when
// no netmaster gets their heartbeats. It guarantees that a host is unreachable only if it
// answered this host before, does not answer now, and at most half of the hosts are away.
// One answer or heartbeat ends that. It sends nothing while all is well. It must not know
// the store, services or drivers: its caller decides what follows. It is called by
// netplugin's agent; cmd/netplugin chooses how it asks. Start with Prober.
package peerhealth
