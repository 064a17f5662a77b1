//go:build integration

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// onDisk is the seat whose member has its data on the disk that fails.
const onDisk = 2

// badDisk makes faults of the disk of one member. A netmaster that ends by them comes
// back when they are over, as a service manager would have it.
func (m *members) badDisk() []fault {
	if m.disk == nil {
		return nil
	}
	of := func(name string, do func(s *seat, chance *rand.Rand) func()) fault {
		return m.w.at(name, func(*rand.Rand) int { return onDisk }, do)
	}
	fails := func(errno syscall.Errno) func(*seat, *rand.Rand) func() {
		return func(s *seat, _ *rand.Rand) func() {
			m.disk.fails(errno)
			return func() {
				m.disk.fails(0)
				p, _ := s.now()
				p.kill()
				m.w.sit(s)
			}
		}
	}
	return []fault{
		of("a member's disk is slow", func(_ *seat, chance *rand.Rand) func() { return m.disk.slows(chance) }),
		of("a member's disk fails", fails(syscall.EIO)),
		of("a member's disk is full", fails(syscall.ENOSPC)),
	}
}

// TestFailingMemberDiskHarmsNoOther: a member whose disk fails, is full or slow, whether it leads the store
// or not, takes nothing from the others: they acknowledge writes meanwhile. When the disk
// is well the member is back, by itself or by who starts it again when it has ended, and
// all that was acknowledged is there.
func TestFailingMemberDiskHarmsNoOther(t *testing.T) {
	if *kindOf != "members" {
		t.Skip("it takes minutes: make test-cluster STORE=members")
	}
	testenv.Need(t)
	d := newDisk(t)
	m := newMembers(t, installed(t), d)
	m.w.start(false)
	m.w.eventually("all netmasters answer", func() error { return m.w.ready(t.Context()) })
	var written []string
	for _, c := range []struct {
		name  string
		errno syscall.Errno
		slow  time.Duration
	}{{"fails", syscall.EIO, 0}, {"full", syscall.ENOSPC, 0}, {"slow", 0, time.Second}} {
		for _, leads := range []bool{false, true} {
			what := fmt.Sprintf("%s-%t", c.name, leads)
			m.haveLead(what, leads)
			met := d.faults(t)
			d.fails(c.errno)
			d.slowDown(c.slow)
			begin := time.Now()
			for n := range 6 {
				path := fmt.Sprintf("/api/v1/tenants/%s-%d/", what, n)
				m.w.eventually(what+": the others acknowledge a write", func() error {
					return ask(t.Context(), http.MethodPut, m.w.seats[n%onDisk].url()+path, fmt.Sprintf(`{"tenantName":"%s-%d"}`, what, n))
				})
				written = append(written, path)
			}
			m.w.eventually(what+": the disk is met", func() error {
				if d.faults(t) == met {
					return errors.New("nothing was asked of it")
				}
				return nil
			})
			t.Logf("%s: the others acknowledged 6 writes in %s", what, time.Since(begin).Round(time.Millisecond))
			d.fails(0)
			d.slowDown(0)
			m.w.eventually(what+": the member is back", func() error {
				m.at(onDisk).process.comeBack()
				return m.w.ready(t.Context())
			})
		}
	}
	for _, s := range m.w.seats {
		for _, path := range written {
			if err := ask(t.Context(), http.MethodGet, s.url()+path, ""); err != nil {
				t.Errorf("acknowledged, and not there: %v", err)
			}
		}
	}
}

// haveLead has the member on the disk lead the store, or another.
func (m *members) haveLead(what string, leads bool) {
	m.w.eventually(what+": the right member leads", func() error {
		ctx, cancel := context.WithTimeout(m.t.Context(), clientPatience)
		defer cancel()
		of := func(seat int) (*clientv3.Client, *clientv3.StatusResponse, error) {
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.at(seat).etcd}, DialTimeout: clientPatience})
			if err != nil {
				return nil, nil, err
			}
			s, err := c.Status(ctx, m.at(seat).etcd)
			return c, s, err
		}
		to := 0
		if leads {
			to = onDisk
		}
		var leader *clientv3.Client
		var wanted uint64
		for seat := range m.seats {
			c, s, err := of(seat)
			if c != nil {
				defer func() { _ = c.Close() }()
			}
			if err != nil {
				return err
			}
			if s.Leader == s.Header.MemberId {
				if leader = c; (seat == onDisk) == leads {
					return nil
				}
			}
			if seat == to {
				wanted = s.Header.MemberId
			}
		}
		if leader == nil {
			return errors.New("none leads")
		}
		_, err := leader.MoveLeader(ctx, wanted)
		return errors.Join(errors.New("it was moved"), err)
	})
}
