package waiting

import (
	"context"
	"sync"
)

// Changes lets any number of goroutines wait for the next change of something.
// The zero Changes is ready for use.
type Changes struct {
	mu   sync.Mutex
	next chan struct{} // nil = not requested since the last change
}

// Next returns what is closed at the next change. Who looks at the thing after
// calling Next misses none.
func (c *Changes) Next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Notify wakes everybody who waits: the thing has changed.
func (c *Changes) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// Until asks ok, now and after every change, until it reports true, or fails,
// with its error; or ctx ends, with ctx's.
func (c *Changes) Until(ctx context.Context, ok func() (bool, error)) error {
	for {
		next := c.Next()
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Value is a value that others wait for. The zero Value holds the zero T.
type Value[T comparable] struct {
	changes Changes
	mu      sync.Mutex
	value   T
}

// Set changes the value. Setting the present value wakes no waiter.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value != value {
		v.value = value
		v.changes.Notify()
	}
}

// Get returns the value and what is closed when it is another one.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.changes.Next()
}

// Until waits for a value that ok accepts, or for ctx to end.
func (v *Value[T]) Until(ctx context.Context, ok func(T) bool) error {
	return v.changes.Until(ctx, func() (bool, error) {
		now, _ := v.Get()
		return ok(now), nil
	})
}

// Bell calls one goroutine to work. Rings before it is heard count once.
type Bell chan struct{}

// NewBell returns a bell that has not been rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring never blocks; what was rung for is seen by a look after the bell is heard.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default: // it rings already
	}
}
