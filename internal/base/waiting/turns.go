package waiting

import (
	"context"
	"sync"
)

// Turns are locks by key, each with one holder at a time. The zero Turns is ready for use.
// A key without holder and waiters costs nothing.
type Turns[K comparable] struct {
	mu   sync.Mutex
	keys map[K]*turn
}

type turn struct {
	token chan struct{} // holds one token while somebody has it
	uses  int           // holder and those who wait
}

// Take waits for the turn of a key, or for ctx to end, whose error it returns
// then. end gives the turn to the next one.
func (t *Turns[K]) Take(ctx context.Context, k K) (end func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[K]*turn{}
	}
	x := t.keys[k]
	if x == nil {
		x = &turn{token: make(chan struct{}, 1)}
		t.keys[k] = x
	}
	x.uses++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if x.uses--; x.uses == 0 {
			delete(t.keys, k)
		}
	}
	select {
	case x.token <- struct{}{}:
		return func() { <-x.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
