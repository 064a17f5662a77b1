// Package tunnelprobe tests the tunnels to the hosts that this host's containers send to:
// whether packets come back, small ones and those of full size.
//
// It guarantees: a host counts as cut off after three lost probes in a row, or, before it
// has ever answered, after ten seconds without an answer; one answer takes that back; what
// the driver could not send yet says nothing; all probes together are at most 200 a second.
//
// It must not know the store, or which driver there is: who is asked, and what follows, is
// its caller's.
package tunnelprobe
