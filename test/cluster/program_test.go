//go:build integration

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/waiting"
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

// Where package time takes the wall clock, and what comes before and in its place.
const (
	nowSource = "	sec, nsec, mono := runtimeNow()\n"
	nowLine   = "func Now() Time {\n" + nowSource
	offSource = `var ahead atomic.Int64

// SetAhead has Now be so many seconds ahead.
func SetAhead(seconds int64) { ahead.Store(seconds) }

`
	clockSource = `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			text, _ := os.ReadFile(os.Getenv("CLOCK_AHEAD"))
			if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
				time.SetAhead(n)
			}
		}
	}()
}
`
)

// buildProgram builds netmaster with a clock that can be set. The library is compiled
// anew for it, which takes minutes the first time.
func buildProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	clock := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(clock)
	if err != nil {
		t.Fatal(err)
	}
	was := string(text)
	now := strings.Replace(was, nowLine, offSource+nowLine+"	sec += ahead.Load()\n", 1)
	now = strings.Replace(now, "import (\n", "import (\n\t\"sync/atomic\"\n", 1)
	if strings.Count(was, nowLine) != 1 || !strings.Contains(now, `"sync/atomic"`) {
		t.Fatalf("package time of this Go takes the wall clock elsewhere than by\n%s", nowLine)
	}
	commands, err := filepath.Abs("../../cmd/netmaster")
	if err != nil {
		t.Fatal(err)
	}
	replaced := map[string]string{}
	for at, content := range map[string]string{clock: now, filepath.Join(commands, "clock.go"): clockSource} {
		file := filepath.Join(dir, filepath.Base(at))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[at] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "netmaster")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", path, commands)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
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
	m.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.t.TempDir(), "CLOCK_AHEAD=" + p.clock(seat)}
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
	file := p.clock(seat)
	err := os.WriteFile(file+".new", fmt.Append(nil, ahead), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		p.t.Error(err)
	}
}

// TestClock: the program's clock can be set.
func TestClock(t *testing.T) {
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
