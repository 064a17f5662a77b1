// Package origin refuses what a web page could make a browser send to a listener, and
// keeps two parties on the way from reading one request as two.
//
// It guarantees that a request by a DNS name that is not the server's is refused
// (DNS rebinding), that a page of another origin changes nothing (Fetch Metadata, RFC 6454),
// and that nothing follows a request that could end in two places (RFC 9112 section 6.1).
//
// It must not know who asks. Every HTTP listener on a TCP port uses it: netmaster's API,
// netplugin's inspection and profiling.
package origin
