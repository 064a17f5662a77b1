// Package bgp is a host's BGP speaker, on github.com/osrg/gobgp: it announces the host's
// prefixes to routers and learns their routes. It guarantees that a change of one neighbor
// touches no other session, that a learned route is never announced to another neighbor and
// never overlaps a protected prefix, and that a faulty neighbor is reported and harms no
// other. It must not read the store, know what a prefix is for, or touch the kernel's
// routes. It is called by package fabric and by test/bgp. Start with Speaker;
// docs/design/bgp.md explains it.
package bgp
