// Package peerhealth asks other hosts over the tunnels' path whether they are alive, when
// no netmaster gets heartbeats from them.
//
// It guarantees: a host counts as silent only if it has answered this host before, does not
// answer now, sends no heartbeat to netmasters, and at most half of the hosts are away. One
// answer, or a heartbeat, takes it back. A probe that this host could not send means
// nothing. All others together ask a host at most some hundred times a second, and ask none
// while all is well.
//
// It must not know the store, services or drivers: its caller decides what follows from
// silence.
package peerhealth
