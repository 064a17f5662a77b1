// Package origin refuses what a web page could make a browser send to a listener, and
// keeps two parties on the way from reading one request as two.
//
// It guarantees that a request by a DNS name that is not the server's is refused
// (DNS rebinding), that a page of another origin changes nothing (Fetch Metadata, RFC 6454),
// and that nothing follows a request that could end in two places (RFC 9112 section 6.1).
//
// It must not know who asks. Every HTTP listener on a TCP port uses it: netmaster's API and
// its port for joining, netplugin's inspection, and profiling. Others have the time limits of
// transport.NewServer and the shares of connections of transport.Listen only:
//
//   - The embedded etcd's port for clients. Without HTTP/2, which browsers do not speak in
//     plain text, it answers GET of /version, /metrics and /health. Prometheus asks it by
//     names that netmaster does not know.
//   - The embedded etcd's port for members. It takes connections with a member's certificate.
//   - Health check ports of services. Load balancers ask them by any name. All requests get
//     the same answer, and change nothing.
package origin
