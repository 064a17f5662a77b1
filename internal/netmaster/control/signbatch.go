package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Most reports of L2 announcers are heartbeats alone, two a second of each. The ones that a
// netmaster gets within signsEvery share transactions. Each host's row is read and written
// as if it were alone.

const (
	// signsEvery is how long after the last such transactions the next ones may begin. It is
	// short beside the time after which an agent asks the next netmaster.
	signsEvery = 50 * time.Millisecond
	// signsAtOnce is how many hosts a transaction is of: any store takes three operations
	// for each.
	signsAtOnce = 16
	// signsBytes bounds what the rows of a transaction have.
	signsBytes = 256 << 10
)

// errAlone says that a report is not for a transaction with others.
var errAlone = errors.New("this report is stored alone")

// signBatches gathers signs of life.
type signBatches struct {
	mu     sync.Mutex
	last   *signBatch // the one that gathers, unless it is full or has begun
	begins time.Time  // when the last one began, or begins
}

// signBatch is one transaction: of its reports while it gathers, with their answers once
// it is done.
type signBatch struct {
	begins  time.Time
	reports map[model.HostName]AnswerReport
	bytes   int
	done    chan struct{}
	held    map[model.HostName][]netip.Addr
	errs    map[model.HostName]error // that are of one report
	err     error
}

// join adds a report to a transaction; first tells that the caller has to carry it out.
func (s *signBatches) join(r AnswerReport) (b *signBatch, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 64 + 48*len(r.Able) // an address takes at most so many bytes
	full := s.last != nil && (len(s.last.reports) == signsAtOnce || s.last.bytes+size > signsBytes)
	if first = s.last == nil || full; first {
		if !full { // else it begins together with the former
			s.begins = later(time.Now(), s.begins.Add(signsEvery))
		}
		s.last = &signBatch{begins: s.begins, reports: map[model.HostName]AnswerReport{}, done: make(chan struct{})}
	}
	if _, twice := s.last.reports[r.Host]; twice {
		return nil, false
	}
	s.last.reports[r.Host] = r
	s.last.bytes += size
	return s.last, first
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// keepTogether keeps a sign of life of a host that gets nothing and gives nothing back, in
// one transaction with others'; errAlone = the report is more than that.
func (la *L2Announcers) keepTogether(ctx context.Context, r AnswerReport) ([]netip.Addr, error) {
	b, first := la.signs.join(r)
	if b == nil {
		return nil, errAlone
	}
	if first { // for others too, whatever becomes of this one
		la.keepSigns(context.WithoutCancel(ctx), b)
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch err := b.errs[r.Host]; {
	case b.err != nil:
		return nil, b.err
	case err != nil:
		return nil, fmt.Errorf("save the answered addresses of host %s: %w", r.Host, err)
	}
	return b.held[r.Host], nil
}

// keepSigns carries a transaction out once its time has come.
func (la *L2Announcers) keepSigns(ctx context.Context, b *signBatch) {
	defer close(b.done)
	timer := time.NewTimer(time.Until(b.begins))
	defer timer.Stop()
	<-timer.C
	la.signs.mu.Lock()
	if la.signs.last == b {
		la.signs.last = nil
	}
	la.signs.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, model.AnswerFor) // later it has no use
	defer cancel()
	hosts := make([]model.HostName, 0, len(b.reports))
	var rows []string
	for h := range b.reports {
		hosts = append(hosts, h)
		rows = append(rows, answererRows(h)...)
	}
	slices.Sort(hosts)
	_, b.err = la.commits.update(ctx, Admin(), "keep what hosts answer for", func(tx store.Tx) error {
		b.held, b.errs = map[model.HostName][]netip.Addr{}, map[model.HostName]error{}
		if err := tx.Prefetch(rows...); err != nil {
			return err
		}
		for _, h := range hosts {
			if err := la.keepSign(tx, b, b.reports[h]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (la *L2Announcers) keepSign(tx store.Tx, b *signBatch, r AnswerReport) error {
	was, err := la.ownAnswerer(tx, r)
	if refused, ok := errors.AsType[refusedAnswer](err); ok {
		b.errs[r.Host] = refused
		return nil
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(was.Addrs, func(a netip.Addr) bool {
		_, able := slices.BinarySearchFunc(r.Able, a, netip.Addr.Compare)
		return !able
	}) {
		b.errs[r.Host] = errAlone
		return nil
	}
	held, _, err := la.keepAnswersOf(tx, r, nil)
	b.held[r.Host] = held
	return err
}
