// Package bgp tests the BGP speaker, and hosts that use it, with the routers FRR and BIRD
// of Debian on one Ethernet segment between namespaces. It guarantees that nothing is left:
// the namespaces lie in one of its own, and the routers end with it. It must not share any
// BGP code with the speaker but its interface. It is called by `make test-bgp`. Start with
// segment_test.go.
package bgp
