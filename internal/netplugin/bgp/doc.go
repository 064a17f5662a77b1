// Package bgp is a host's BGP speaker: it tells neighbors, the routers of the
// physical network, which prefixes the host has, and learns the network's routes
// from them, over the library github.com/osrg/gobgp.
//
// It guarantees that only what differs is changed: a neighbor that changes
// touches no session of another, and of what is announced only the difference
// goes out; that nothing learned is passed on to another neighbor; that a learned
// route never overlaps what is protected, nor is the default route unless asked
// for; that a neighbor beyond its limit, with the wrong number, that is silent or
// speaks nonsense is told of in a sentence and harms nobody else; and that its
// goroutines end with it.
//
// It must not read the store, know what a prefix is for, or touch the kernel's
// routes: who makes a speaker gives it what it wants and looks at its picture.
package bgp
