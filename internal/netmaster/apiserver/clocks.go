package apiserver

import (
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
)

// clocksMatter is from what difference on a clock that differs is more than a notice: join
// tokens are refused from there on.
const clocksMatter = 5 * time.Minute

// judgeClock tells of a clock that is ahead of this netmaster's, or behind.
func judgeClock(check, where string, ahead time.Duration) []api.Finding {
	off, side, c := ahead.Abs(), "ahead of", condition.ClockOff
	if off <= clockSkew {
		return nil
	}
	if ahead < 0 {
		side = "behind"
	}
	if off > clocksMatter {
		c = condition.ClockFarOff
	}
	found := c.Finding(where, fmt.Sprintf("its clock is %s %s the answering netmaster's", off.Round(time.Second), side))
	found.Check = check
	return []api.Finding{found}
}

// clockOffset is how far a host's clock is, if it has told it.
func (f facts) clockOffset(host string) (time.Duration, bool) {
	if f.inspections == nil {
		return 0, false
	}
	d, known := f.inspections.ahead[host]
	return d, known
}

// lastStatusTimes is when the last status of hosts came here.
func (s *diagnosis) lastStatusTimes() map[string]liveness.StatusArrival {
	if s.hostWatch == nil {
		return nil
	}
	return s.hostWatch.StatusArrivals()
}
