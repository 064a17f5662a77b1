// Package checksum computes the Internet checksum (RFC 1071) of headers, and of messages
// with a pseudo-header. It guarantees the same sum on every machine: bytes are in network
// order. It must not parse packets: the caller says where they begin and end. It is called
// by the Open vSwitch driver, the L2 announcer and the multicast listener. Start with Sum.
package checksum
