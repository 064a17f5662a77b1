package netctl

import (
	"errors"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// TestStatusHasAShorterTimeout: status has a shorter timeout than other commands, unless flags or the
// environment set one.
func TestStatusHasAShorterTimeout(t *testing.T) {
	for _, tc := range []struct{ given, want time.Duration }{{0, statusTimeout}, {api.DefaultTimeout, api.DefaultTimeout}, {time.Second, time.Second}} {
		stop := errors.New("stop")
		s := &session{globals: globals{netmaster: DefaultNetmaster, timeout: tc.given}}
		var got time.Duration
		s.connect = func(g globals) (*api.Client, error) {
			got = g.timeout
			return nil, stop
		}
		if err := runStatus(t.Context(), &statusOptions{common: common{session: s}}); err == nil {
			t.Error("no error")
		}
		if got != tc.want {
			t.Errorf("--timeout %v: %v, want %v", tc.given, got, tc.want)
		}
	}
}

// TestHostRowShowsTheState: the state of a host says for how long it is away, that it has not reported
// yet, that a change waits there and that it went back from one.
func TestHostRowShowsTheState(t *testing.T) {
	trial := []api.Condition{{Name: "others", Severity: "notice"}, {Name: "unconfirmed", Severity: "notice"}}
	for want, h := range map[string]api.Host{
		"away":                              {State: api.HostAway},
		"away for 12m0s":                    {State: api.HostAway, AwaySeconds: 720},
		"no report yet":                     {State: api.HostAlive, Age: -1},
		"alive, unconfirmed change":         {State: api.HostAlive, Ready: true, Conditions: trial},
		"not ready, rolled back":            {State: api.HostAlive, Conditions: []api.Condition{{Name: "rolled-back"}}},
		"alive, unconfirmed change, drains": {State: api.HostAlive, Ready: true, Conditions: trial, Draining: true},
	} {
		if got := hostRow(h)[1]; got != want {
			t.Errorf("%+v: %q, want %q", h, got, want)
		}
	}
}

// TestSizesAreNeverZero: what is there is never said to be nothing.
func TestSizesAreNeverZero(t *testing.T) {
	for n, want := range map[int64]string{0: "0.0", 1: "0.001", 20 << 10: "0.020", 1 << 20: "1.0", 3 << 19: "1.5", 2 << 30: "2048.0"} {
		if got := formatMebibytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestStatusNamesHostsThatAreNotCompared(t *testing.T) {
	alive, away := api.Host{Name: "h1", State: api.HostAlive, VerifiedAge: 7}, api.Host{Name: "h2", State: api.HostAway}
	for want, hosts := range map[string][]api.Host{
		"Data planes were compared with their desired state within the last 7 s (the oldest on host h1)":                               {alive},
		"Data planes were compared with their desired state within the last 7 s (the oldest on host h1); not compared, since away: h2": {alive, away},
		"": {away},
	} {
		if got := comparedText(api.ClusterStatus{Hosts: hosts}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
