// Package origin refuses requests that a web page could make a browser send to a listener,
// and requests that two parties could read as different ones. It guarantees that foreign
// DNS names are refused (DNS rebinding), that pages of other origins change nothing (Fetch
// Metadata, RFC 6454), and that nothing follows a request with two possible ends (RFC 9112
// section 6.1). It must not know who asks. It is called by every HTTP listener on TCP
// (netmaster's API and its port for joining, netplugin's inspection, profiling) but those
// in docs/design/security.md. Start with Handler.
package origin
