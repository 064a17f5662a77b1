package ebpf

import "testing"

// TestSizesOfTables: what the error of a full table advises, --ebpf-map-sizes,
// takes every table that can be full.
func TestSizesOfTables(t *testing.T) {
	for _, name := range []string{"ports", "tags", "networks", "stations", "hosts", "members", "sets", "rules", "cidrs", "privates"} {
		if err := CheckSizes(map[string]uint32{name: 100000}); err != nil {
			t.Errorf("%s=100000: %v", name, err)
		}
	}
}
