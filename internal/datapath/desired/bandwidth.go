package desired

import "time"

// Rate limits what a port's endpoint sends and receives, and marks what it sends.
type Rate struct {
	Send, Receive Limit
	DSCP          uint8 // of all that it sends (RFC 2474 section 3), 1-63; 0 = as the endpoint has marked it
}

// Limit is how much may pass in one direction; the zero value is no limit.
type Limit struct {
	Bits  uint64 // of IP a second, as an average; 0 = no limit
	Burst uint64 // bytes that may pass at once after a pause; 0 = DefaultBurst of Bits
}

// What a limit means where the profile leaves it open.
const (
	// burstTime is long enough for what a busy host's timers come late by.
	burstTime = 4 * time.Millisecond
	// minBurst is three packets of Ethernet: at 1 Mbit/s a stream that lost one of the two or
	// three packets that wait leaves the queue empty for some 30 ms, and makes up for it.
	minBurst = 3 * 1514
)

// Bucket is Burst, or what is chosen from Bits: 4 ms of it, and at least three packets
// of 1,514 bytes.
func (l Limit) Bucket() uint64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return max(minBurst, l.Bytes(burstTime))
}

// Bytes is what passes in a time at the limit's rate.
func (l Limit) Bytes(in time.Duration) uint64 {
	return l.Bits / 8 * uint64(in/time.Microsecond) / 1_000_000
}
