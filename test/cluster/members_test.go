//go:build integration

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// members is the store that netmasters keep by themselves: each of them is a process
// and a member, whom the others reach behind a link. It is a world's storage, and
// begins its netmasters.
type members struct {
	t         *testing.T
	program   *program
	w         *world
	replacing sync.Mutex // held while one is lost for good: of two, with three, nothing comes back
	disk      *disk      // of the member on seat onDisk; nil = none fails

	mu    sync.Mutex
	seats [3]member
	made  int
}

// member is one whose data outlive its process.
type member struct {
	name, etcd string // etcd: host:port of the member's
	args       []string
	peer       *link // the others' way to it
	life       *life // of its process
	process    *masterProcess
}

// life is the others' way to a member while one process of it lives: what ends that
// process breaks no connection of the next one.
type life struct {
	wire
	mu   sync.Mutex
	over bool
}

func (l *life) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.wire.cut()
	}
}

// live gives a seat's member its next life.
func (m *members) live(seat int) *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := &m.seats[seat]
	if is.life != nil {
		is.life.mu.Lock()
		is.life.over = true
		is.life.mu.Unlock()
		is.peer.heal()
	}
	is.life = &life{wire: is.peer}
	return is.life
}

// newMembers has no member yet. d, if it is not nil, is the disk of one of them.
func newMembers(t *testing.T, p *program, d *disk) *members {
	t.Helper()
	m := &members{t: t, disk: d, program: p}
	m.w = newWorld(t, m)
	m.w.begin = m.begin
	return m
}

// enter makes a member for a seat, under a name that none has had.
func (m *members) enter(seat int) member {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	name, peer := fmt.Sprintf("m%d", m.made), storetest.FreePort(m.t)
	dir := filepath.Join(m.t.TempDir(), name)
	if m.disk != nil && seat == onDisk {
		dir = filepath.Join(m.disk.dir, name)
	}
	is := member{name: name, etcd: storetest.FreePort(m.t), peer: newLink(m.t, func() string { return peer })}
	is.args = []string{
		"--data-dir", dir, "--member-name", name, "--etcd-listen", is.etcd, "--internal-address", storetest.FreePort(m.t),
		"--peer-listen", peer, "--peer-address", is.peer.address, "--join-listen", storetest.FreePort(m.t),
	}
	m.seats[seat] = is
	return is
}

func (m *members) at(seat int) member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seats[seat]
}

// begin starts the member of a seat, or makes one that founds the cluster or joins it.
func (m *members) begin(seat int) (netmaster, wire) {
	is := m.at(seat)
	if is.name != "" {
		is.process.end() // it may still be stopping, and two cannot have one directory
		alive := m.live(seat)
		return m.run(seat, is), alive
	}
	if seat == 0 {
		p := m.run(0, m.enter(0))
		m.w.eventually("the first member serves", func() error { return ask(m.t.Context(), "GET", "http://"+p.address()+"/readyz", "") })
		return p, m.live(0)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p, err := m.join(ctx, seat, "http://"+m.w.seats[0].target())
	if err != nil {
		m.t.Fatal(err)
	}
	return p, m.live(seat)
}

// run starts a member's process.
func (m *members) run(seat int, is member, more ...string) *masterProcess {
	listen := storetest.FreePort(m.t)
	args := append([]string{"--external-address", listen, "--agent-address", storetest.FreePort(m.t)}, is.args...)
	p := &masterProcess{newProcess(m.t, listen, m.program.path, append(args, more...)...)}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.t.TempDir(), testcluster.ClockAt(m.program.clock(seat))}
	p.start()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seats[seat].process = p
	return p
}

// join has a new member join in a seat, by netmasters at URLs, until it serves. One
// whose process ends meanwhile is started again, by the same command.
func (m *members) join(ctx context.Context, seat int, urls string) (*masterProcess, error) {
	c, err := api.NewClient(urls, api.WithTimeout(clientPatience))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var token api.JoinToken
	if err := again(ctx, func() (err error) {
		token, err = c.NewJoinToken(ctx, api.JoinTokenRequest{})
		return err
	}); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	p := m.run(seat, m.enter(seat), "--join", strings.Join(token.Addresses, ","), "--token", token.Token)
	if err := again(ctx, func() error {
		p.comeBack()
		return ask(ctx, "GET", "http://"+p.address()+"/readyz", "")
	}); err != nil {
		return nil, fmt.Errorf("member %s does not serve: %w", m.at(seat).name, err)
	}
	return p, nil
}

// again tries until it works, or ctx ends.
func again(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || waiting.Pause(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

func (m *members) connect(t *testing.T, _ bool) (store.Store, wire) {
	t.Helper()
	var all wires
	var addresses []string
	for n := range m.seats {
		l := newLink(t, func() string { return m.at(n).etcd })
		all, addresses = append(all, l), append(addresses, "http://"+l.address)
	}
	c, err := etcd.New(etcd.Config{Endpoints: addresses, Timeout: clientPatience, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c, all
}

func (m *members) direct(t *testing.T) store.Store {
	t.Helper()
	st, _ := m.connect(t, false)
	return st
}

// wires are the ways of one participant to each member.
type wires []*link

func (w wires) cut() {
	for _, l := range w {
		l.cut()
	}
}

func (w wires) stall(answersOnly bool) {
	for _, l := range w {
		l.stall(answersOnly)
	}
}

func (w wires) heal() {
	for _, l := range w {
		l.heal()
	}
}

// minutesOff is by how much clocks are set: tokens to join are refused where one goes back by five minutes.
const minutesOff = 2

func (m *members) faults() []fault {
	return append(m.badDisk(),
		m.w.on("a netmaster stands still", func(s *seat, _ *rand.Rand) func() {
			p, _ := s.now()
			return p.(*masterProcess).pause()
		}),
		m.w.on("a netmaster's clock is set", func(s *seat, chance *rand.Rand) func() {
			m.program.set(s.n, chance.Int64N(2*minutesOff*60)-minutesOff*60)
			return func() {}
		}),
		fault{"all netmasters are killed", m.allKilled},
		fault{"revisions are compacted", func(_ context.Context, chance *rand.Rand) func() {
			compactEtcd(m.t, m.at(chance.IntN(len(m.seats))).etcd)
			return func() {}
		}},
		fault{"a member is lost for good and another joins", m.lostForGood})
}

// allKilled kills all members at once, where none has another fault.
func (m *members) allKilled(context.Context, *rand.Rand) func() {
	for i, s := range m.w.seats {
		if !s.turn.TryLock() {
			for _, had := range m.w.seats[:i] {
				had.turn.Unlock()
			}
			return nil
		}
	}
	for _, s := range m.w.seats {
		s.clientLink.cut()
		p, _ := s.now()
		p.kill()
	}
	return func() {
		for _, s := range m.w.seats {
			m.w.sit(s)
			s.clientLink.heal()
			s.turn.Unlock()
		}
	}
}

// lostForGood kills a member whose data are lost too, and has another, under another
// name, take its seat.
func (m *members) lostForGood(_ context.Context, chance *rand.Rand) func() {
	if !m.replacing.TryLock() {
		return nil
	}
	s := m.w.seats[chance.IntN(len(m.w.seats))]
	if !s.turn.TryLock() {
		m.replacing.Unlock()
		return nil
	}
	s.clientLink.cut()
	p, _ := s.now()
	p.kill()
	lost := m.at(s.n)
	lost.peer.cut()
	return func() {
		defer m.replacing.Unlock()
		defer s.turn.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // others have faults meanwhile
		defer cancel()
		if err := m.replace(ctx, s, lost); err != nil {
			m.t.Errorf("%s is not replaced: %v", lost.name, err)
		}
		s.clientLink.heal()
	}
}

func (m *members) replace(ctx context.Context, s *seat, lost member) error {
	var urls []string
	for _, other := range m.w.seats {
		if other != s {
			urls = append(urls, other.url())
		}
	}
	c, err := api.NewClient(strings.Join(urls, ","), api.WithTimeout(clientPatience))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := again(ctx, func() error {
		_, err := c.RemoveMember(ctx, lost.name, false)
		if e, ok := errors.AsType[*api.Error](err); ok && e.Kind == api.KindNotFound {
			return nil // removed, and the answer was lost
		}
		return err
	}); err != nil {
		return fmt.Errorf("remove it: %w", err)
	}
	p, err := m.join(ctx, s.n, strings.Join(urls, ","))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m, s.wire, s.direct = p, m.live(s.n), p.address()
	return nil
}
