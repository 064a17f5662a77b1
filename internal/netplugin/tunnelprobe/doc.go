// Package tunnelprobe tests the tunnels to the hosts that this host's containers send to:
// whether packets come back, small ones and those of full size.
//
// It guarantees: a host is reported after three lost probes in a row, or, before it has
// ever answered, after ten seconds without an answer; three rounds of answers in a row end
// that; a report outlasts that the host is away for some minutes; what the driver could not
// send yet says nothing; all probes together are at most 200 a second.
//
// It must not know the store, or which driver there is: who is asked, and what follows, is
// its caller's.
package tunnelprobe
