package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestCreateWaitsForFirstMaster: a container that comes right after the agent's
// start waits for the registry to be read, for a while.
func TestCreateWaitsForFirstMaster(t *testing.T) {
	tests := []struct {
		name  string
		after time.Duration // when a netmaster is known
		want  time.Duration // when wait returns
		found bool
	}{
		{"known already", 0, 0, true},
		{"known soon", time.Second, time.Second, true},
		{"never known", time.Hour, firstMaster, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := newMasters("")
				if err != nil {
					t.Fatal(err)
				}
				defer m.close()
				tell := func() {
					if err := m.set([]string{"http://127.0.0.1:1"}); err != nil {
						t.Error(err)
					}
				}
				if tt.after == 0 {
					tell()
				} else {
					defer time.AfterFunc(tt.after, tell).Stop()
				}
				start := time.Now()
				c := m.wait(t.Context())
				if took := time.Since(start); took != tt.want || (c != nil) != tt.found {
					t.Errorf("after %v, found %t; want after %v, found %t", took, c != nil, tt.want, tt.found)
				}
			})
		})
	}
}

// TestCreateGivesUpWithContext: a runtime that has gone is not waited for, and
// the error says what is missing.
func TestCreateGivesUpWithContext(t *testing.T) {
	m, err := newMasters("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = m.create(ctx, api.CreateEndpointRequest{}, model.EndpointKey{})
	if err == nil || err.Error() != errNoMaster.Error() {
		t.Errorf("got %v, want %v", err, errNoMaster)
	}
}
