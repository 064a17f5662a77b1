package agent

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

const (
	// rollbackAfter is how long no netmaster answers before the host takes back a change of
	// its own networking: one that restarts is back before.
	rollbackAfter = 30 * time.Second
	// revertTime is how long a change stays back before it is applied again, since it was
	// not what keeps netmasters from answering.
	revertTime = 20 * time.Second
)

// lifeline keeps the host's way to its netmasters. When none answers and the path to them
// has changed since one did, it takes back the newest change of the host's own interfaces,
// routes and forwarding mode since then. If a netmaster then answers, the change stays back.
// Otherwise it is applied again, and the next older one is tried. Each is tried once. Rules
// for containers are never taken back. Only announce's goroutine uses it.
type lifeline struct {
	netmasters func() []netip.Addr
	path       func(to []netip.Addr) map[netip.Addr]string
	changes    *hostchanges.History
	follow     func(hostchanges.Change) error // makes a change what its state says
	log        *slog.Logger
	now        func() time.Time

	unanswered time.Time // since when no netmaster answers, or this process runs
	revertedAt time.Time // since when a change is in state Trial, or this process runs
	begun      time.Time // of the report that is under way
	before     map[netip.Addr]string
	mark       uint64
}

// newLifeline returns a lifeline that goes on with what its History has of the process before.
func newLifeline(l lifeline) *lifeline {
	l.unanswered, l.revertedAt = l.now(), l.now()
	return &l
}

// ask notes that a report is about to be sent.
func (l *lifeline) ask() {
	l.begun, l.before, l.mark = l.now(), l.path(l.netmasters()), l.changes.Mark()
}

// answered notes that a netmaster has answered it.
func (l *lifeline) answered() {
	if c, is := l.changes.PendingRevert(); is {
		l.log.Warn("a netmaster answers since a change of this host's own networking was rolled back: it stays rolled back", "change", changeText(c))
	}
	l.unanswered = l.begun
	l.changes.Answered(l.mark, l.before)
	l.changes.Save()
}

// noAnswer notes that none has.
func (l *lifeline) noAnswer() {
	now := l.now()
	if c, is := l.changes.PendingRevert(); is {
		if now.Sub(l.revertedAt) >= revertTime {
			l.log.Warn("no netmaster answers without a change of this host's own networking either: it is applied again", "change", changeText(c))
			l.setState(c, hostchanges.Reapplied)
		}
		return
	}
	if now.Sub(l.unanswered) < rollbackAfter || !l.pathChanged() {
		return
	}
	c, is := l.changes.Newest()
	if !is {
		return
	}
	l.log.Warn("no netmaster answers since a change of this host's own networking, and the path there has changed: the change is rolled back", "change", changeText(c))
	l.revertedAt = now
	l.setState(c, hostchanges.Reverting)
}

// setState has a change be rolled back, or applied again.
func (l *lifeline) setState(c hostchanges.Change, s hostchanges.State) {
	c.State = s
	l.changes.Set(c.Number, s)
	l.changes.Save()
	if err := l.follow(c); err != nil {
		l.log.Warn("a change of this host's own networking cannot be rolled back, or not be applied again", "change", changeText(c), "error", err)
	}
}

// pathChanged reports whether the path to a netmaster is another than when one answered last.
func (l *lifeline) pathChanged() bool {
	known := l.changes.Path()
	return !maps.Equal(l.path(slices.Collect(maps.Keys(known))), known)
}

// changeText says what a change is.
func changeText(c hostchanges.Change) string {
	what := map[hostchanges.Kind]string{
		hostchanges.Infra: "interface on infra network", hostchanges.Routes: "routes to services and native networks",
		hostchanges.Learned: "routes that were learned by BGP", hostchanges.Mode: "forwarding mode, before",
	}[c.Kind]
	const most = 8
	if len(c.Objects) > most {
		return what + " " + strings.Join(c.Objects[:most], ", ") + " and more"
	}
	return what + " " + strings.Join(c.Objects, ", ")
}
