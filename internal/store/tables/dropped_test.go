package tables

import (
	"testing"
)

func TestDroppedRowsAreNamed(t *testing.T) {
	for key, want := range map[string]string{
		"/contiv.io/state/tenant/blue/volumes/v":             "volume blue:v",
		"/contiv.io/state/tenant/a%2Fb/volumeprofiles/gold%": "",
		"/contiv.io/state/tenant/a%2Fb/volumeprofiles/x":     "volume profile a/b:x",
		"/contiv.io/state/tenant/blue/volumes/v/w":           "",
		"/contiv.io/state/tenant/blue/networks/v":            "",
		"/contiv.io/state/global/volumes/v":                  "",
	} {
		d, is := DroppedAt(key)
		if is != (want != "") || is && d.String() != want {
			t.Errorf("%s is of %q (%v), want %q", key, d, is, want)
		}
	}
}
