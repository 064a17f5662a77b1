package agent

import (
	"log/slog"
	"time"

	"github.com/contiv/netplugin/v2/internal/hostnet"
	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// silentBefore is how long no netmaster answers before the host takes back a change of
	// its own interfaces: one that restarts is back before.
	silentBefore = 30 * time.Second
	// trialTime is how long a change stays back before it is applied again, since it was
	// not what keeps netmasters from answering.
	trialTime = 20 * time.Second
)

// lifeline keeps the host's way to its netmasters. When none answers and the path to them
// has changed since one did, it takes back the newest change of the host's own interfaces
// and routes. If a netmaster then answers, the change stays back; otherwise it is applied
// again. Rules for containers are never taken back. Only announce's goroutine uses it.
type lifeline struct {
	changes hostChanges
	log     *slog.Logger
	now     func() time.Time

	asked    time.Time // when the report was sent that was answered last
	path     string    // to netmasters, before that report
	begun    time.Time // of the report that is under way
	before   string    // the path then
	trial    model.NetworkKey
	trialAt  time.Time
	harmless time.Time // of the newest change that was applied again
}

// hostChanges are the changes that can be taken back, and the path that they may cut.
type hostChanges interface {
	Path() string
	NewestInfra(since time.Time) (model.NetworkKey, time.Time)
	SuspendInfra(k model.NetworkKey, why string) error
	ResumeInfra(k model.NetworkKey) error
}

// ask notes that a report is about to be sent.
func (l *lifeline) ask() { l.begun, l.before = l.now(), l.changes.Path() }

// answered notes that a netmaster has answered it.
func (l *lifeline) answered() {
	l.asked, l.path = l.begun, l.before
	if l.trial != (model.NetworkKey{}) {
		l.log.Warn("a netmaster answers since this host's interface on an infra network is down: it stays down", "network", l.trial.String())
		l.trial = model.NetworkKey{}
	}
}

// silent notes that none has.
func (l *lifeline) silent() {
	now := l.now()
	if l.trial != (model.NetworkKey{}) {
		if now.Sub(l.trialAt) < trialTime {
			return
		}
		if err := l.changes.ResumeInfra(l.trial); err != nil {
			l.log.Warn("this host's interface on an infra network is not up again", "network", l.trial.String(), "error", err)
		}
		l.trial = model.NetworkKey{}
		return
	}
	if l.asked.IsZero() || now.Sub(l.asked) < silentBefore || l.changes.Path() == l.path {
		return
	}
	since := l.asked
	if l.harmless.After(since) {
		since = l.harmless
	}
	k, at := l.changes.NewestInfra(since)
	if k == (model.NetworkKey{}) {
		return
	}
	l.log.Warn("no netmaster answers since this host got an interface on an infra network, and the path there has changed: the interface is taken down", "network", k.String())
	l.trial, l.trialAt, l.harmless = k, now, at
	err := l.changes.SuspendInfra(k, "this host's interface on it is down: since it was made no netmaster answered, and without it one does; delete the network, and choose another subnet")
	if err != nil {
		l.log.Warn("this host's interface on an infra network is not taken down", "network", k.String(), "error", err)
	}
}

// ways are the host's own changes, and its path to netmasters.
type ways struct{ *Agent }

// Path says by which interfaces and gateways this host reaches its netmasters.
func (w ways) Path() string { return hostnet.Path(w.control.NetmasterAddresses()) }
