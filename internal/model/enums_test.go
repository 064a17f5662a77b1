package model

import "testing"

// TestMissingEnumIsSaidToBeMissing: an empty value is one that was not given.
func TestMissingEnumIsSaidToBeMissing(t *testing.T) {
	for s, want := range map[string]string{
		"":    `encap "": is missing: must be one of vlan, vxlan`,
		"gre": `encap "gre": must be one of vlan, vxlan`,
	} {
		if _, err := ParseEncap(s); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", s, err, want)
		}
	}
}
