// Package checksum has the Internet's checksum (RFC 1071) of headers and of messages
// that count their addresses too.
//
// It guarantees nothing about what it sums; bytes are in network order.
//
// It must not know packets: who calls says where they begin and end.
package checksum
