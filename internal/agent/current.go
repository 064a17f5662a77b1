package agent

import "sync"

// current is a value and a way to wait for another.
type current[T comparable] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{} // closed and replaced when the value changes
}

func newCurrent[T comparable]() *current[T] { return &current[T]{changed: make(chan struct{})} }

func (c *current[T]) set(v T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.value != v {
		c.value = v
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

func (c *current[T]) get() (T, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.changed
}
