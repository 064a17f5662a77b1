package control

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A refused change tells values as the API writes them; what was not there is not "invalid IP".
func TestImmutableFieldsAreNamedInTheAPIsWords(t *testing.T) {
	for _, tc := range []struct {
		old, new any
		want     string
	}{
		{netip.Addr{}, netip.MustParseAddr("10.1.1.1"), `f "10.1.1.1": cannot change, it was created without`},
		{netip.MustParseAddr("10.1.1.1"), netip.Addr{}, `f "": cannot change, it was created with "10.1.1.1"`},
		{netip.Prefix{}, netip.MustParsePrefix("10.1.0.0/16"), `f "10.1.0.0/16": cannot change, it was created without`},
		{model.AddrRange{}, model.AddrRange{}, `f "": cannot change, it was created without`},
		{uint32(0), uint32(5), `f "5": cannot change, it was created with "0"`},
	} {
		if got := immutable("f", tc.old, tc.new).Error(); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}
