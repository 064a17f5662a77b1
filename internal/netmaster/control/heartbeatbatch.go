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
// netmaster gets within heartbeatBatchInterval share transactions. Each host's row is read and written
// as if it were alone.

const (
	// heartbeatBatchInterval is how long after the last such transactions the next ones may begin. It is
	// short beside the time after which an agent asks the next netmaster.
	heartbeatBatchInterval = 50 * time.Millisecond
	// heartbeatsPerBatch is how many hosts a transaction is of: any store takes three operations
	// for each.
	heartbeatsPerBatch = 16
	// heartbeatBatchBytes bounds what the rows of a transaction have.
	heartbeatBatchBytes = 256 << 10
)

// errOwnTransaction says that a report is not for a transaction with others.
var errOwnTransaction = errors.New("this report is stored alone")

// heartbeatBatches gathers signs of life.
type heartbeatBatches struct {
	mu     sync.Mutex
	last   *heartbeatBatch // the one that gathers, unless it is full or has begun
	begins time.Time       // when the last one began, or begins
}

// heartbeatBatch is one transaction: of its reports while it gathers, with their answers once
// it is done.
type heartbeatBatch struct {
	begins  time.Time
	reports map[model.HostName]L2AnnouncerReport
	bytes   int
	done    chan struct{}
	addrs   map[model.HostName][]netip.Addr
	errs    map[model.HostName]error // that are of one report
	err     error
}

// join adds a report to a transaction; first tells that the caller has to carry it out.
func (s *heartbeatBatches) join(r L2AnnouncerReport) (b *heartbeatBatch, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 64 + 48*len(r.Able) // an address takes at most so many bytes
	full := s.last != nil && (len(s.last.reports) == heartbeatsPerBatch || s.last.bytes+size > heartbeatBatchBytes)
	if first = s.last == nil || full; first {
		if !full { // else it begins together with the former
			s.begins = later(time.Now(), s.begins.Add(heartbeatBatchInterval))
		}
		s.last = &heartbeatBatch{begins: s.begins, reports: map[model.HostName]L2AnnouncerReport{}, done: make(chan struct{})}
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

// batchHeartbeat keeps a sign of life of a host that gets nothing and gives nothing back, in
// one transaction with others'; errOwnTransaction = the report is more than that.
func (la *L2Announcers) batchHeartbeat(ctx context.Context, r L2AnnouncerReport) ([]netip.Addr, error) {
	b, first := la.signs.join(r)
	if b == nil {
		return nil, errOwnTransaction
	}
	if first { // for others too, whatever becomes of this one
		la.commitBatch(context.WithoutCancel(ctx), b)
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
	return b.addrs[r.Host], nil
}

// commitBatch carries a transaction out once its time has come.
func (la *L2Announcers) commitBatch(ctx context.Context, b *heartbeatBatch) {
	defer close(b.done)
	timer := time.NewTimer(time.Until(b.begins))
	defer timer.Stop()
	<-timer.C
	la.signs.mu.Lock()
	if la.signs.last == b {
		la.signs.last = nil
	}
	la.signs.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, model.L2LeaseTime) // later it has no use
	defer cancel()
	hosts := make([]model.HostName, 0, len(b.reports))
	var rows []string
	for h := range b.reports {
		hosts = append(hosts, h)
		rows = append(rows, announcerKeys(h)...)
	}
	slices.Sort(hosts)
	_, b.err = la.commits.update(ctx, Admin(), "keep what hosts answer for", func(tx store.Tx) error {
		b.addrs, b.errs = map[model.HostName][]netip.Addr{}, map[model.HostName]error{}
		if err := tx.Prefetch(rows...); err != nil {
			return err
		}
		for _, h := range hosts {
			if err := la.commitHeartbeat(tx, b, b.reports[h]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (la *L2Announcers) commitHeartbeat(tx store.Tx, b *heartbeatBatch, r L2AnnouncerReport) error {
	was, err := la.readAnnouncer(tx, r)
	if refused, ok := errors.AsType[refusedReport](err); ok {
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
		b.errs[r.Host] = errOwnTransaction
		return nil
	}
	held, _, err := la.assignFor(tx, r, nil)
	b.addrs[r.Host] = held
	return err
}
