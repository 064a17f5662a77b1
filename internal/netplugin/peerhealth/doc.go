// Package peerhealth asks other hosts whether they are there, over the way that tunnels
// take, when no netmaster hears of them.
//
// It guarantees: nobody is taken for silent who has not answered this host before,
// who answers, whom netmasters hear, or while more than half of the hosts are away; one
// answer, or a netmaster that hears the host again, takes it back; a probe that this
// host could not send says nothing; each host is asked at most some hundred times a
// second by all others together, and nobody is asked again while all is well.
//
// It must not know the store, services or drivers: what follows from silence is
// its caller's.
package peerhealth
