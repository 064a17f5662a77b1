//go:build integration

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// program is netmaster as it is installed, but for its clock: it is built with a
// package time whose Now is off by what a file says.
type program struct {
	t      *testing.T
	path   string
	clocks string // a directory with a file for each seat: seconds that its netmaster's clock is ahead
	flag   string // names a store
	on     *onServer
}

// buildProgram builds netmaster with a clock that can be set.
func buildProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := testcluster.BuildWithClocks(t.Context(), ".", dir, "netmaster"); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "netmaster")
}

// programOn is the program for netmasters on a store, which a flag names.
func programOn(t *testing.T, on *onServer, flag string) *program {
	t.Helper()
	return &program{t: t, path: buildProgram(t), clocks: t.TempDir(), flag: flag, on: on}
}

func (p *program) clock(seat int) string { return filepath.Join(p.clocks, strconv.Itoa(seat)) }

// begin starts the program in a seat.
func (p *program) begin(seat int) (netmaster, wire) {
	l := newLink(p.t, p.on.address)
	return p.at(seat, l.address), l
}

func (p *program) at(seat int, store string) *masterProcess {
	listen := storetest.FreePort(p.t)
	m := &masterProcess{newProcess(p.t, listen, p.path, p.flag, "http://"+store, "--external-address", listen, "--agent-address", storetest.FreePort(p.t))}
	m.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.t.TempDir(), testcluster.ClockAt(p.clock(seat))}
	m.start()
	return m
}

// masterProcess is a netmaster that is a process of its own.
type masterProcess struct{ *process }

func (m *masterProcess) kill() { m.end() }

func (m *masterProcess) stop() { m.endBy(syscall.SIGTERM) }

// faults are what goes wrong with netmasters that are processes.
func (p *program) faults(w *world) []fault {
	return []fault{
		w.on("a netmaster stands still", func(s *seat, _ *rand.Rand) func() {
			m, _ := s.now()
			return m.(*masterProcess).pause()
		}),
		w.on("a netmaster's clock is set", func(s *seat, chance *rand.Rand) func() {
			p.set(s.n, chance.Int64N(2*86400)-86400)
			return func() {} // it stays so until it is set again
		}),
	}
}

// set sets the clock of a seat's netmaster.
func (p *program) set(seat int, ahead int64) {
	if err := testcluster.SetClock(p.clock(seat), time.Duration(ahead)*time.Second); err != nil {
		p.t.Error(err)
	}
}

// TestClockCanBeSet: the program's clock can be set.
func TestClockCanBeSet(t *testing.T) {
	if *ops == 0 {
		t.Skip("it takes minutes: make test-cluster")
	}
	p := programOn(t, nil, "--etcd-endpoints")
	p.set(0, -365*86400)
	m := p.at(0, storetest.FreePort(t)) // no store is there, of which it tells
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for want := fmt.Sprint("time=", time.Now().Add(-365*24*time.Hour).Year()); !strings.Contains(m.said(), want); {
		if waiting.Pause(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("no line has %s:\n%s", want, m.said())
		}
	}
}
