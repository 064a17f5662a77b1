package checksum

// Right is the sum over something whose checksum is right (RFC 1071 section 1).
const Right = 0xffff

// Sum is the ones' complement sum of start and of b, whose last byte counts as if a
// zero followed where their number is odd (RFC 1071). What goes into a header is its
// complement, made while the field is 0.
func Sum(start uint32, b []byte) uint16 {
	sum := uint64(start)
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(b[0])<<8 | uint64(b[1])
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// Upper is the sum over a message of protocol proto with the pseudo-header of its
// addresses, source and destination, four or sixteen bytes each (RFC 9293 section 3.1,
// RFC 8200 section 8.1). A message is shorter than 4 GiB.
func Upper(proto uint8, addrs, message []byte) uint16 {
	n := uint32(len(message)) //nolint:gosec // as said
	return Sum(uint32(Sum(n>>16+n&0xffff+uint32(proto), addrs)), message)
}
