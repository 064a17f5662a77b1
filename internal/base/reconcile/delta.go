package reconcile

import "iter"

// Delta holds what should be and what is, by key, and the difference between
// them, kept up to date at a cost per change that does not grow with the maps.
type Delta[K comparable, V any] struct {
	equal   func(a, b V) bool
	desired map[K]V
	actual  map[K]V
	pending map[K]struct{}
}

// NewDelta returns an empty Delta; equal compares two values.
func NewDelta[K comparable, V any](equal func(a, b V) bool) *Delta[K, V] {
	return &Delta[K, V]{equal, map[K]V{}, map[K]V{}, map[K]struct{}{}}
}

// Want says that k should have the value v.
func (d *Delta[K, V]) Want(k K, v V) { d.desired[k] = v; d.check(k) }

// Unwant says that k should not be there.
func (d *Delta[K, V]) Unwant(k K) { delete(d.desired, k); d.check(k) }

// Have says that k has the value v.
func (d *Delta[K, V]) Have(k K, v V) { d.actual[k] = v; d.check(k) }

// Gone says that k is not there.
func (d *Delta[K, V]) Gone(k K) { delete(d.actual, k); d.check(k) }

func (d *Delta[K, V]) check(k K) {
	want, wanted := d.desired[k]
	have, there := d.actual[k]
	if wanted == there && (!wanted || d.equal(want, have)) {
		delete(d.pending, k)
	} else {
		d.pending[k] = struct{}{}
	}
}

// Change is one key in which the two sides differ.
type Change[K comparable, V any] struct {
	Key           K
	Want, Have    V
	Wanted, There bool
}

// Len returns the number of keys in which the two sides differ.
func (d *Delta[K, V]) Len() int { return len(d.pending) }

// Pending yields them, in no particular order. Have and Gone may be called for
// the yielded key while iterating.
func (d *Delta[K, V]) Pending() iter.Seq[Change[K, V]] {
	return func(yield func(Change[K, V]) bool) {
		for k := range d.pending {
			c := Change[K, V]{Key: k}
			c.Want, c.Wanted = d.desired[k]
			c.Have, c.There = d.actual[k]
			if !yield(c) {
				return
			}
		}
	}
}
