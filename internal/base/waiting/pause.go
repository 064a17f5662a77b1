package waiting

import (
	"context"
	"time"
)

// Pause returns after d, or with ctx's error when that ends earlier.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
