package observe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// certificatesLast tells of this netplugin's certificates that have ended, or do soon.
// It cuts nothing off by itself: the host does its work until then, and may be without a netmaster
// afterwards, which is told by its own condition.
func certificatesLast(_ context.Context, a *Observer, _ *observation) error {
	ended, soon := a.support().Endings(time.Now())
	if all := slices.Concat(ended, soon); len(all) > 0 {
		return errors.New(strings.Join(all, "; "))
	}
	return nil
}
