package control

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store"
)

// runWhenNeeded does a leader's task each time that work is left, which it checks at each of the
// changes, until ctx ends or the leadership is lost. It passes a failure to failed, and
// tries the task again.
func runWhenNeeded(ctx context.Context, changes *waiting.Changes, left func() bool, do func() error, failed func(error)) error {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 100 * time.Millisecond, Max: 5 * time.Second})
	for ctx.Err() == nil {
		err := changes.Until(ctx, func() (bool, error) { return left(), nil })
		if err == nil {
			err = do()
		}
		switch {
		case err == nil:
			retry.Reset()
		case errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() == nil:
			failed(err)
			_ = retry.Pause(ctx)
		}
	}
	return nil
}
