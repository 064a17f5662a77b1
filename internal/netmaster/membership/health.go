package membership

import (
	"sync/atomic"
	"time"
)

// Health checks this member's etcd, disk and certificates, and makes its snapshots.
type Health struct {
	*local
	began   time.Time
	unsaved atomic.Pointer[error] // why the last snapshot of the schedule was not made; nil = it was
}
