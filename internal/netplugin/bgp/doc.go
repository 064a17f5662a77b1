// Package bgp is a host's BGP speaker. It announces the host's prefixes to neighbors, the
// routers of the physical network, and learns the network's routes from them, over the
// library github.com/osrg/gobgp.
//
// It guarantees:
//   - Only differences are changed: a change of one neighbor touches no other session, and
//     only the difference of announcements is sent.
//   - A learned route is never announced to another neighbor. It never overlaps a protected
//     prefix, and is never the default route unless configured.
//   - A neighbor beyond its limit, with the wrong AS number, without answers or with
//     malformed messages is reported in a sentence and harms no other.
//   - Its goroutines end with it.
//
// It must not read the store, know what a prefix is for, or touch the kernel's routes. Its
// owner gives it the desired state and reads its State.
package bgp
