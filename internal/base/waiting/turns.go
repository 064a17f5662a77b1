package waiting

import (
	"context"
	"sync"
)

// KeyedLocks are locks by key, each with one holder at a time. The zero Turns is ready for use.
// A key without holder and waiters costs nothing.
type KeyedLocks[K comparable] struct {
	mu   sync.Mutex
	keys map[K]*keyedLock
}

type keyedLock struct {
	token chan struct{} // holds one token while somebody has it
	uses  int           // holder and those who wait
}

// Lock waits for the turn of a key, or for ctx to end, whose error it returns
// then. end gives the turn to the next one.
func (t *KeyedLocks[K]) Lock(ctx context.Context, k K) (end func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[K]*keyedLock{}
	}
	x := t.keys[k]
	if x == nil {
		x = &keyedLock{token: make(chan struct{}, 1)}
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
