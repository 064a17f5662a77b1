// Package multicast keeps who hears which multicast group on one host.
//
// A driver hands over the messages of IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710,
// 3810) that containers and the physical network have sent; Listener reads them, keeps
// the table, asks containers again from time to time, and says what the data plane's
// picture is to have (desired.Host.Groups). docs/adr/0029-multicast.md has the why.
//
// Guarantees: what is kept is bounded for each endpoint and for the host, whatever is
// sent; no message makes it panic; a member stays one while it answers, also over a
// restart of this process.
//
// It must not judge packets, know drivers or the store, or send anything to an endpoint
// but questions for what that listens to.
package multicast
