package bgp

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// TestStormOfChangesIsPaced: a storm of changes is looked at once each 100 ms, and none is forgotten; what
// comes after a quiet time, the end of a session and what follows from it are looked at
// at once.
func TestStormOfChangesIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changed, ended, late := waiting.NewBell(), waiting.NewBell(), make(chan time.Time)
		begun := time.Now()
		var looks []time.Duration
		var lates int
		done := make(chan struct{})
		go func() {
			defer close(done)
			paced(ctx, changed, ended, late, func(isLate bool) {
				looks = append(looks, time.Since(begun))
				if isLate {
					lates++
				}
				<-time.After(30 * time.Millisecond) // as long as it takes with many routes
			})
		}()
		expect := func(what string, n int) {
			t.Helper()
			if synctest.Wait(); len(looks) != n {
				t.Errorf("%s: %d looks, want %d: %v", what, len(looks), n, looks)
			}
			looks = nil
		}
		changed.Ring()
		expect("the first change", 1)
		for range 1300 {
			<-time.After(time.Millisecond)
			changed.Ring()
		}
		expect("1.3 s of changes", 10)
		<-time.After(readInterval + 31*time.Millisecond) // from the end of the look that runs
		expect("the last of them", 1)
		<-time.After(2 * readInterval)
		expect("quiet", 0)

		changed.Ring()
		<-time.After(40 * time.Millisecond)
		looks = nil
		ended.Ring()
		expect("a session ends", 1)
		<-time.After(31 * time.Millisecond)
		changed.Ring()
		expect("what follows from it", 1)
		<-time.After(immediateFor)
		looks = nil
		changed.Ring()
		<-time.After(31 * time.Millisecond)
		changed.Ring()
		expect("what does not", 1)
		late <- time.Time{}
		if expect("late", 1); lates != 1 {
			t.Errorf("late is told %d times", lates)
		}
		cancel()
		<-done
	})
}

// TestSessionEndIsReportedAtOnce: the end of a session is reported at once, its beginning is not.
func TestSessionEndIsReportedAtOnce(t *testing.T) {
	l := newLearner()
	for _, up := range []bool{true, false} {
		l.session(netip.MustParseAddr("127.0.0.2"), up, true, false)
		if got := len(l.sessionEnd) == 1; got == up {
			t.Errorf("up %t: an end is told: %t", up, got)
		}
	}
}

// TestChangingRoutesArePublishedSeldom: a neighbor that changes a route each 2 ms does not change the snapshot
// as often.
func TestChangingRoutesArePublishedSeldom(t *testing.T) {
	h := start(t, 1, nil, Options{})
	r := connect(t, "127.0.0.2", routerAS, h)
	r.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
	begun, before := time.Now(), h.Routes().Generation
	hop := ""
	for i := range 300 {
		<-time.After(2 * time.Millisecond) // so that each could be looked at by itself
		hop = []string{"10.9.0.2", "10.9.0.3"}[i%2]
		r.tell(way{hop: hop}, "10.2.0.0/16")
	}
	h.learns(map[string]string{"10.2.0.0/16": hop})
	n, most := h.Routes().Generation-before, uint64(time.Since(begun)/(100*time.Millisecond))+2
	t.Logf("%d states in %v", n, time.Since(begun))
	if n > most {
		t.Errorf("%d states of 300 changes in %v, want %d at most", n, time.Since(begun), most)
	}
}
