package store

import (
	"context"
	"io"
)

// Snapshot is a consistent copy of all that a store holds, as its own tools read
// it. It has to be closed.
type Snapshot = io.ReadCloser

// Snapshotter is a Store that can be copied while it is used.
type Snapshotter interface {
	// Snapshot begins to copy the store as it is now; ctx bounds the whole copy.
	Snapshot(ctx context.Context) (Snapshot, error)
}
