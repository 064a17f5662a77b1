package agent

import (
	"log/slog"
	"time"
)

const (
	// rollbackAfter is how long no netmaster answers before the host takes back a change of
	// its own networking: one that restarts is back before.
	rollbackAfter = 30 * time.Second
	// trialTime is how long a change stays back before it is applied again, since it was
	// not what keeps netmasters from answering.
	trialTime = 20 * time.Second
)

// lifeline keeps the host's way to its netmasters. When none answers and the path to them
// has changed since one did, it takes back the newest change of the host's own interfaces,
// routes and forwarding mode. If a netmaster then answers, the change stays back; otherwise
// it is applied again. Rules for containers are never taken back. Only announce's goroutine
// uses it.
type lifeline struct {
	path    func() string // to netmasters
	changes []hostChanges
	log     *slog.Logger
	now     func() time.Time

	asked    time.Time // when the report was sent that was answered last
	known    string    // the path before that report
	begun    time.Time // of the report that is under way
	before   string    // the path then
	trial    *suspended
	harmless time.Time // of the newest change that was applied again
}

// suspended is a change that is taken back.
type suspended struct {
	of   hostChanges
	what string
	made time.Time
	at   time.Time // when it was taken back
}

// hostChanges are changes of one kind that can be taken back.
type hostChanges interface {
	// Newest returns the newest change after since that is not taken back, by its time
	// and in words; zero = there is none.
	Newest(since time.Time) (made time.Time, what string)
	// Suspend takes the change back that was made then; a problem tells of it.
	Suspend(made time.Time) error
	// Resume applies it again.
	Resume(made time.Time) error
}

// ask notes that a report is about to be sent.
func (l *lifeline) ask() { l.begun, l.before = l.now(), l.path() }

// answered notes that a netmaster has answered it.
func (l *lifeline) answered() {
	l.asked, l.known = l.begun, l.before
	if l.trial != nil {
		l.log.Warn("a netmaster answers since a change of this host's own networking was rolled back: it stays rolled back", "change", l.trial.what)
		l.trial = nil
	}
}

// noAnswer notes that none has.
func (l *lifeline) noAnswer() {
	now := l.now()
	if t := l.trial; t != nil {
		if now.Sub(t.at) < trialTime {
			return
		}
		if err := t.of.Resume(t.made); err != nil {
			l.log.Warn("a reverted change is not applied again", "change", t.what, "error", err)
		}
		l.trial = nil
		return
	}
	if l.asked.IsZero() || now.Sub(l.asked) < rollbackAfter || l.path() == l.known {
		return
	}
	since := l.asked
	if l.harmless.After(since) {
		since = l.harmless
	}
	newest := suspended{at: now}
	for _, c := range l.changes {
		if made, what := c.Newest(since); made.After(newest.made) {
			newest.of, newest.made, newest.what = c, made, what
		}
	}
	if newest.of == nil {
		return
	}
	l.log.Warn("no netmaster answers since a change of this host's own networking, and the path there has changed: the change is rolled back", "change", newest.what)
	l.trial, l.harmless = &newest, newest.made
	if err := newest.of.Suspend(newest.made); err != nil {
		l.log.Warn("the change cannot be reverted", "change", newest.what, "error", err)
	}
}
