package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// hostStatus returns the status that the bed's host has written, nil for none.
func (b *bed) hostStatus() (*tables.HostStatus, store.Revision, error) {
	kvs, _, err := b.st.Range(b.t.Context(), tables.HostStatusScope)
	if err != nil || len(kvs) == 0 {
		return nil, 0, errors.Join(err, errors.New("no status is written"))
	}
	row, err := tables.HostStatuses.Decode(kvs[0])
	return &row.Value, kvs[0].Mod, err
}

// TestStatusTellsHealth: what /readyz says is in the store too, with kinds,
// attachments and tables; and it is written again when nothing happens, but not
// more often than the beat.
func TestStatusTellsHealth(t *testing.T) {
	b := newBed(t, func(c *Config) { c.StatusLook, c.StatusBeat = 20*time.Millisecond, time.Hour })
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	is := func(what string, ok func(s *tables.HostStatus) bool) {
		t.Helper()
		b.eventually(what, func() error {
			s, _, err := b.hostStatus()
			if err == nil && !ok(s) {
				err = fmt.Errorf("status %+v", s)
			}
			return err
		})
	}
	is("ready with one attachment", func(s *tables.HostStatus) bool {
		return s.Ready && s.Attachments == 1 && s.Ports == 1 && len(s.Tables) > 0 && len(s.Conditions) == 0
	})
	_, settled, err := b.hostStatus()
	if err != nil {
		t.Fatal(err)
	}
	key := b.endpoints()[0].Key
	b.master.idle.Store(true) // else the agent has it put back
	b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, key); return nil })
	is("not ready for an attachment without endpoint", func(s *tables.HostStatus) bool {
		return !s.Ready && len(s.Conditions) == 1 && s.Conditions[0].Name == "attachments" && s.Conditions[0].Severity == api.SeverityError
	})
	if _, rev, err := b.hostStatus(); err != nil || rev <= settled {
		t.Errorf("revision %d after %d, %v", rev, settled, err)
	}
	b.master.idle.Store(false)
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	is("ready again", func(s *tables.HostStatus) bool { return s.Ready && s.Attachments == 0 })
}

// waitingPlane is a data plane that programs nothing before it is released.
type waitingPlane struct {
	driver.Driver
	released chan struct{}
}

func (d waitingPlane) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	select {
	case <-d.released:
	case <-ctx.Done():
		return driver.Report{}, ctx.Err()
	}
	return d.Driver.Apply(ctx, want)
}

// TestStatusTellsEndOfStart: a host that has said that it cannot attach containers yet says
// at once that it can, however long its status else waits.
func TestStatusTellsEndOfStart(t *testing.T) {
	b := newBed(t)
	b.stop()
	b.cfg.StatusEvery = time.Hour
	b.put(func(tx store.Tx) error { tables.HostStatuses.Delete(tx, testHost); return nil })
	d := waitingPlane{b.fake.Restart(), make(chan struct{})}
	b.startWith(d)
	says := func(ready bool) {
		t.Helper()
		b.eventually(fmt.Sprint("the status says ready: ", ready), func() error {
			s, _, err := b.hostStatus()
			if err == nil && s.Ready != ready {
				err = fmt.Errorf("status %+v", s)
			}
			return err
		})
	}
	says(false)
	close(d.released)
	says(true)
}

// TestArrivingNetmasterClearsTheStatus: a netmaster that was not there when the host began is
// not missed any longer than it is not there.
func TestArrivingNetmasterClearsTheStatus(t *testing.T) {
	b := newBed(t, func(c *Config) { c.StatusLook, c.StatusBeat = 5*time.Millisecond, time.Hour })
	b.stop()
	b.master.gone.Store(true)
	b.put(func(tx store.Tx) error { tables.HostStatuses.Delete(tx, testHost); return nil })
	b.fake = b.fake.Restart()
	b.start()
	b.eventually("the host waits for it", func() error {
		if err := b.agent.Observer.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "netmaster") && !strings.Contains(err.Error(), "leased") {
			return fmt.Errorf("ready: %w", err)
		}
		return nil
	})
	says := func() {
		t.Helper()
		b.eventually("the status says ready", func() error {
			s, _, err := b.hostStatus()
			if err == nil && !s.Ready {
				err = fmt.Errorf("status %+v", s)
			}
			return err
		})
	}
	if s, _, err := b.hostStatus(); err == nil {
		t.Errorf("a status %+v while no netmaster was there to keep it", s)
	}
	b.master.gone.Store(false)
	says()
}

// TestIdleHostReportsItsStatus: a host on which nothing happens has a last word all the same.
func TestIdleHostReportsItsStatus(t *testing.T) {
	b := newBed(t, func(c *Config) { c.StatusLook, c.StatusBeat = 5*time.Millisecond, 20*time.Millisecond })
	b.ready()
	var first store.Revision
	b.eventually("a first word", func() (err error) { _, first, err = b.hostStatus(); return err })
	for range 3 {
		b.eventually("another word", func() error {
			_, rev, err := b.hostStatus()
			if err == nil && rev == first {
				err = errors.New("nothing new")
			}
			first = rev
			return err
		})
	}
}

// TestChangedClockIsReportedAtOnce: a host whose clock is set has a last word by its new time at once:
// by the old one it would be silent for as long as it was set by.
func TestChangedClockIsReportedAtOnce(t *testing.T) {
	var ahead atomic.Int64
	b := newBed(t, func(c *Config) {
		c.StatusLook, c.StatusBeat = 5*time.Millisecond, 10*time.Minute
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	b.ready()
	for _, by := range []time.Duration{0, time.Hour, -24 * time.Hour, 0} {
		ahead.Store(int64(by))
		b.eventually(fmt.Sprint("a word with the clock set by ", by), func() error {
			s, _, err := b.hostStatus()
			if err != nil {
				return err
			}
			said, err := time.Parse(time.RFC3339, s.Updated)
			if off := time.Until(said) - by; err == nil && off.Abs() > 5*time.Minute {
				err = fmt.Errorf("it is of %s", s.Updated)
			}
			return err
		})
	}
}

// TestStatusAfterEmptyStore: a host with nothing to put back has its last word in
// a store that lost everything as soon as it has its record there.
func TestStatusAfterEmptyStore(t *testing.T) {
	b := newBed(t, func(c *Config) { c.StatusEvery, c.StatusLook, c.StatusBeat = time.Hour, 5*time.Millisecond, time.Hour })
	b.ready()
	b.eventually("ready, which is all that there is to say", func() error {
		s, _, err := b.hostStatus()
		if err == nil && !s.Ready {
			err = fmt.Errorf("status %+v", s)
		}
		return err
	})
	b.put(func(tx store.Tx) error {
		tables.HostStatuses.Delete(tx, testHost)
		tables.HostLeases.Delete(tx, testHost)
		tables.Hosts.Delete(tx, testHost)
		return nil
	})
	b.eventually("the word is there again", func() error { _, _, err := b.hostStatus(); return err })
}
