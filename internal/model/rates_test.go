package model

import (
	"errors"
	"strings"
	"testing"
)

// TestRatesWithoutAQueueAreRefused: what no queue can be made of is refused, with the field's name.
func TestRatesWithoutAQueueAreRefused(t *testing.T) {
	for _, tc := range []struct {
		r    Rates
		want string
	}{
		{Rates{}, ""},
		{Rates{Send: Rate{Bits: 1000}, Receive: Rate{Bits: 10_000_000_000_000}}, ""},
		{Rates{Send: Rate{Bits: 1000, Burst: 2000}, Receive: Rate{Bits: 1000, Burst: 268_435_455}}, ""},
		{Rates{Send: Rate{Bits: 999}}, `Rates.Send`},
		{Rates{Receive: Rate{Bits: 10_000_000_000_001}}, `Rates.Receive`},
		{Rates{Send: Rate{Burst: 2000}}, `Rates.SendBurst`},
		{Rates{Send: Rate{Bits: 1000, Burst: 1999}}, `Rates.SendBurst`},
		{Rates{Receive: Rate{Bits: 1000, Burst: 268_435_456}}, `Rates.ReceiveBurst`},
	} {
		k, _ := ParseEndpointKey("t:n:e")
		for _, err := range []error{tc.r.Validate(), Endpoint{Key: k, Rates: tc.r}.Validate()} {
			if (err == nil) != (tc.want == "") || err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want+" ")) {
				t.Errorf("%+v: %v, want %q", tc.r, err, tc.want)
			}
		}
	}
}
