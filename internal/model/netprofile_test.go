package model

import "testing"

// Bandwidths in every form that rest.md and known-faults.md (26) speak of.
func TestBandwidthsAreParsedInEveryForm(t *testing.T) {
	for in, kbps := range map[string]uint64{
		"": 0, "10 kbps": 10, "100mbps": 100_000, "1gbps": 1_000_000, "5Mb": 5000, "2g": 2_000_000, "100Kb": 100, "7  k": 7, "10000g": MaxBandwidth,
	} {
		b, err := ParseBandwidth(in)
		if err != nil || b.Kbps != kbps || b.Text != in {
			t.Errorf("%q: %+v, %v", in, b, err)
		}
	}
	for _, in := range []string{"10", "Mbps", "10Tbps", "0k", "01k", "-1k", "1.5g", "10001g", "99999999999999Gbps", "10kbp", " 10k", "10k ", "18446744073709551616k"} {
		_, err := ParseBandwidth(in)
		wantField(t, err, "bandwidth", "number and a unit")
	}
}
