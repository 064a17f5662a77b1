// Package bgp tries the BGP speaker on routers that are not ours, FRR and BIRD
// from Debian, on one segment of Ethernet between namespaces.
//
// It guarantees that nothing is left of it: the namespaces are in one of its
// own, and the routers end with it.
//
// It must not share anything of BGP with the speaker but its interface.
package bgp
