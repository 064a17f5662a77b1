//go:build integration

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// cutFor is after how long without an answer the status has to say that something is wrong.
const cutFor = 10 * time.Second

// truth notes when the status says that all is well while allowed packets are not answered.
type truth struct {
	mu   sync.Mutex
	lies map[string]string // by series: once is enough
	done chan struct{}
}

// watch asks for the status while a series has been cut off for cutFor, until ctx ends.
func (tr *truth) watch(ctx context.Context, w *world) {
	tr.lies, tr.done = map[string]string{}, make(chan struct{})
	go func() {
		defer close(tr.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for series, p := range w.pings {
				cut := func() bool {
					now := time.Now()
					s := p.Between(now.Add(-cutFor), now)
					return s.Sent > 100 && s.Received == 0
				}
				if !cut() {
					continue
				}
				if out, err := w.Masters.Netctl(ctx, "status"); err == nil && cut() {
					tr.mu.Lock()
					tr.lies[series] = fmt.Sprintf("%s: pings %s are not answered for %v, and the status says\n%s", time.Now().Format("15:04:05"), series, cutFor, out)
					tr.mu.Unlock()
				}
			}
		}
	}()
}

// takeLies returns what was noted since it was called last.
func (tr *truth) takeLies() (all []string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, lie := range tr.lies {
		all = append(all, lie)
	}
	clear(tr.lies)
	return all
}
