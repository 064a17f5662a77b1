// Package dns is the name server of one host: it answers the names and
// addresses of containers, groups and services to the containers of the same
// tenant, over UDP and TCP, and forwards everything else to the host's
// resolvers. It is fed by desired.DNS. The asker is known by its source address,
// the host-private address of a local port.
//
// It guarantees that no answer holds a name or an address of another tenant,
// that questions from any other address are refused, that memory, time and the number of
// questions under way are bounded whatever is asked, and that no message makes
// it fail.
//
// It must not know the store or how packets get here, and reads and writes
// DNS messages by the library only (github.com/miekg/dns).
package dns
