package cli

import (
	"errors"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// TestStatusTimeout: status is less patient than other commands, unless it is told
// how patient to be, the others' patience included.
func TestStatusTimeout(t *testing.T) {
	for _, tc := range []struct{ given, want time.Duration }{{0, statusTimeout}, {api.DefaultTimeout, api.DefaultTimeout}, {time.Second, time.Second}} {
		stop := errors.New("stop")
		f := &factory{globals: &globals{netmaster: DefaultNetmaster, timeout: tc.given}}
		var got time.Duration
		f.connect = func(g globals) (*api.Client, error) {
			got = g.timeout
			return nil, stop
		}
		if err := runStatus(t.Context(), &statusOptions{common: newCommon(f), globals: f.globals}); err == nil {
			t.Error("no error")
		}
		if got != tc.want {
			t.Errorf("--timeout %v: %v, want %v", tc.given, got, tc.want)
		}
	}
}
