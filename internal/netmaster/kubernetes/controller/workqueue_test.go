package controller

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// TestFailingObjectsAreNotRetriedWithOthers: objects that cannot be had, each of which takes a millisecond to
// try, are not tried at each change of others, which are looked at at once; what has been
// changed is tried at once, and all are soon after something has changed that may mend
// them, and seldom while nothing does.
func TestFailingObjectsAreNotRetriedWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const troubled, changes = 50, 2000
		of := func(i int) Object { return Object{"things", mirror.Name{Name: strconv.Itoa(i)}} }
		w := newWork(nil)
		w.begin()
		tried, looked := 0, map[Object]time.Time{}
		all := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			never := func() <-chan struct{} { return nil }
			_ = w.loop(ctx, func() <-chan struct{} { return all }, never, func(context.Context) error { // it ends with ctx
				todo, everything, waits := w.take()
				for i := 0; everything && i < troubled; i++ {
					todo[of(i)] = struct{}{}
				}
				if everything {
					todo = without(todo, waits)
				}
				for o := range todo {
					looked[o] = time.Now()
					if len(o.Name.Name) < 3 { // one of the troubled
						tried++
						time.Sleep(time.Millisecond)
						w.retryLater(o)
					}
				}
				return nil
			})
		}()
		synctest.Wait()
		began := time.Now()
		for i := range changes {
			w.add(of(1000 + i))
			if i%3 == 0 {
				all <- struct{}{}
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(troubled * time.Millisecond)
		synctest.Wait()
		if len(looked) != troubled+changes {
			t.Errorf("%d objects were looked at, want %d", len(looked), troubled+changes)
		}
		// At most a fifth of the time, and once more at either end; each change would be 100,000.
		if most := int(time.Since(began)/time.Millisecond)/5 + 2*troubled; tried > most || tried < 3*troubled {
			t.Errorf("what cannot be had was tried %d times while %d others changed, want at most %d and at least %d", tried, changes, most, 3*troubled)
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		before := tried
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := (tried - before) / troubled; n < 6 || n > 30 {
			t.Errorf("with nothing changed all were tried %d times in a minute, want each 5 s or so", n)
		}
		now := time.Now()
		w.add(of(7))
		time.Sleep((troubled + 1) * time.Millisecond) // they may just be tried
		synctest.Wait()
		if looked[of(7)].Before(now) {
			t.Error("what was changed is not looked at")
		}
		all <- struct{}{}
		time.Sleep((retryFactor + 2) * troubled * time.Millisecond) // of those there may just have been a try
		synctest.Wait()
		if looked[of(8)].Before(now) {
			t.Error("after a change of all the others are not tried soon")
		}
		cancel()
		<-done
	})
}
