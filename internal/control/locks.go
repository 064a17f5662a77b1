package control

import (
	"context"
	"sync"
)

// keyLocks are mutexes by name. They only save conflicts between the
// goroutines of one process; the store keeps things right without them.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	turn chan struct{} // holds one token while locked
	uses int
}

// lock waits for the lock of a name, or for ctx to end. The result unlocks.
func (k *keyLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyLock{}
	}
	l := k.locks[name]
	if l == nil {
		l = &keyLock{turn: make(chan struct{}, 1)}
		k.locks[name] = l
	}
	l.uses++
	k.mu.Unlock()
	done := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.uses--; l.uses == 0 {
			delete(k.locks, name)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; done() }, nil
	case <-ctx.Done():
		done()
		return nil, ctx.Err()
	}
}
