package store

// Fence is one term of leadership: the lock's key and when it was created.
type Fence struct {
	Key    string
	Create Revision
}

// Require makes a transaction fail with ErrFenced unless the term still lasts
// when it commits. Every write of a leader carries it.
func (f Fence) Require(tx Tx) { tx.Require(f.Key, f.Create) }
