package model

import "fmt"

// Rates limit what one endpoint sends and receives, beside its group's net profile; the
// zero value limits nothing.
type Rates struct {
	Send    Rate `json:"send,omitzero"`
	Receive Rate `json:"receive,omitzero"`
}

// Rate limits one direction of an endpoint.
type Rate struct {
	Bits  uint64 `json:"bits"`            // of IP a second, as an average, MinRate-MaxRate; 0 = no limit
	Burst uint64 `json:"burst,omitempty"` // bytes at once after a pause, MinRateBurst-MaxRateBurst; 0 = chosen from Bits
}

// Limits of rates.
const (
	MinRate      = 1000                // bits a second
	MaxRate      = MaxBandwidth * 1000 // likewise
	MinRateBurst = 2000                // bytes: a packet
	// MaxRateBurst is 2,147,483,647 bits: runtimes that have no burst to tell say more.
	MaxRateBurst = 268_435_455
)

// Validate checks both directions; the error is of kind ErrInvalid.
func (r Rates) Validate() error {
	for _, d := range []struct {
		field string
		Rate
	}{{"Rates.Send", r.Send}, {"Rates.Receive", r.Receive}} {
		switch {
		case d.Bits == 0 && d.Burst > 0:
			return InvalidField(d.field+"Burst", d.Burst, "must be left out without a rate, which it does not limit")
		case d.Bits > 0 && (d.Bits < MinRate || d.Bits > MaxRate):
			return InvalidField(d.field, d.Bits, fmt.Sprintf("must be between %d and %d bits a second, or 0 for no limit", MinRate, uint64(MaxRate)))
		case d.Burst > 0 && (d.Burst < MinRateBurst || d.Burst > MaxRateBurst):
			return InvalidField(d.field+"Burst", d.Burst, fmt.Sprintf("must be between %d, a packet, and %d bytes, or 0 to choose it from the rate", MinRateBurst, MaxRateBurst))
		}
	}
	return nil
}
