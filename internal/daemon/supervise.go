package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// systemdInterval is how often a program that is not ready yet is asked.
const systemdInterval = 100 * time.Millisecond

// Supervise tells systemd, when it started the program (Type=notify), that it is
// ready once ready says so, and then, if the unit asks for it (WatchdogSec), that
// it is alive for as long as alive returns in time without an error. It returns
// when ctx ends, and tells that too; without systemd it does nothing.
func Supervise(ctx context.Context, log *slog.Logger, ready, alive func(context.Context) error) {
	told, err := daemon.SdNotify(false, "STATUS=starting")
	if err != nil {
		log.Warn("systemd cannot be notified that this program is ready", "error", err)
	}
	if !told {
		return
	}
	notify := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("systemd cannot be notified", "what", state, "error", err)
		}
	}
	tick := time.NewTicker(systemdInterval)
	defer tick.Stop()
	defer notify(daemon.SdNotifyStopping)
	for last := ""; ; {
		err := ready(ctx)
		if err == nil {
			break
		}
		if why := err.Error(); why != last {
			notify("STATUS=waiting: " + why)
			last = why
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	notify(daemon.SdNotifyReady + "\nSTATUS=running")
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil || limit == 0 {
		<-ctx.Done()
		return
	}
	tick.Reset(limit / 3)
	for {
		select {
		case <-tick.C:
			actx, cancel := context.WithTimeout(ctx, limit/3)
			if err := alive(actx); err == nil {
				notify(daemon.SdNotifyWatchdog)
			} else if ctx.Err() == nil {
				log.Error("this program does not work properly; systemd will restart it", "error", err)
			}
			cancel()
		case <-ctx.Done():
			return
		}
	}
}
