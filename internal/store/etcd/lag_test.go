package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestMemberThatLagsIsGivenTime: a mirror that meets a member which is behind moves on for
// two seconds, in which containers are attached; after that it says what keeps it.
func TestMemberThatLagsIsGivenTime(t *testing.T) {
	t.Parallel()
	var l memberLag
	now := time.Now()
	older, away := fmt.Errorf("etcd at x: %w", errOlder), errors.New("away")
	for _, x := range []struct {
		after  time.Duration
		reason error
		moves  bool
	}{
		{0, older, true},
		{memberLagGrace / 2, older, true},
		{memberLagGrace, older, false},
		{2 * memberLagGrace, away, false},
		{2 * memberLagGrace, older, true},
		{3 * memberLagGrace, older, false},
	} {
		got := l.judge(x.reason, now.Add(x.after))
		if errors.Is(got, store.ErrSourceChanged) != x.moves || !errors.Is(got, x.reason) || errors.Is(x.reason, errOlder) && !errors.Is(got, model.ErrUnavailable) {
			t.Errorf("after %v, %v: %v", x.after, x.reason, got)
		}
	}
	if err := l.judge(nil, now); err != nil {
		t.Error(err)
	}
}
