package control

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// L2Announcers gives addresses of load balancers to hosts that answer their neighbours for
// them. answers and signs guard themselves.
type L2Announcers struct {
	commits   *Committer
	hostView  *HostView
	ownerView *AddressOwnerView
	answers   announcerReports
	signs     heartbeatBatches
}

// Of the hosts that could answer ARP and neighbour discovery for an address of the load
// balancers' pool one does. It says each model.L2ReportInterval that it lives, and believes
// that it has the address for model.L2LeaseTime from the moment before it said so; any
// netmaster gives the address to another host once the last sign that it saw is older than
// model.L2SilenceTime, which is longer. So no two hosts answer, whatever becomes of
// netmasters and store, and no clocks are compared.

const (
	// announcerReportTTL is for how long a host that has reported counts as one to be preferred.
	announcerReportTTL = model.L2LeaseTime - 100*time.Millisecond
	// addressesPerTransaction is how many addresses a transaction gives, and how many it takes back.
	addressesPerTransaction = 10
	// maxAnnouncerTransactions bounds the transactions of a report; the next one does the rest.
	maxAnnouncerTransactions = 20
)

// L2AnnouncerReport is what a host could answer for now, and does not beyond it.
type L2AnnouncerReport struct {
	Host         model.HostName
	Installation string
	Run          int64
	Seq          uint64       // never lower than in an earlier report of the run
	Able         []netip.Addr // sorted
}

// announcerHeartbeat is a heartbeat. A transaction that takes addresses from a silent host writes its row
// too, and gives none in its name.
type announcerHeartbeat struct {
	installation string
	run          int64
	seq          uint64
}

func announcerHeartbeatOf(a tables.L2Announcer) announcerHeartbeat {
	return announcerHeartbeat{a.Installation, a.Run, a.Seq}
}

// announcerReports is which hosts have told this netmaster what they could answer for. It
// spreads addresses over hosts and decides nothing else.
type announcerReports struct {
	mu    sync.Mutex
	since time.Time // when it began to get reports, after a time without any
	last  time.Time
	able  map[model.HostName]ableHost
}

type ableHost struct {
	at    time.Time
	addrs map[netip.Addr]bool
}

// add notes a report and returns which of some addresses are its host's rather than
// another's. Nothing is before it has listened for as long as each host takes to report.
func (h *announcerReports) add(r L2AnnouncerReport) func(netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Sub(h.last) > announcerReportTTL {
		h.since, h.able = now, map[model.HostName]ableHost{}
	}
	h.last = now
	for name, x := range h.able {
		if now.Sub(x.at) > announcerReportTTL {
			delete(h.able, name)
		}
	}
	able := ableHost{now, make(map[netip.Addr]bool, len(r.Able))}
	for _, a := range r.Able {
		able.addrs[a] = true
	}
	h.able[r.Host] = able
	all := maps.Clone(h.able)
	early := now.Sub(h.since) < model.L2ReportInterval
	return func(a netip.Addr) bool {
		if early {
			return false
		}
		var best model.HostName
		for name, x := range all {
			if x.addrs[a] && (best == "" || preferred(name, best, a)) {
				best = name
			}
		}
		return best == r.Host
	}
}

// preferred reports whether an address is a host's rather than another's (rendezvous
// hashing).
func preferred(h, other model.HostName, a netip.Addr) bool {
	score := func(h model.HostName) uint64 {
		f := fnv.New64a()
		_, _ = f.Write(a.AsSlice())
		_, _ = f.Write([]byte(h))
		// FNV's high bits hardly feel the last bytes.
		x := f.Sum64()
		x ^= x >> 33
		x *= 0xff51afd7ed558ccd
		return x ^ x>>33
	}
	return cmp.Or(cmp.Compare(score(h), score(other)), cmp.Compare(h, other)) > 0
}

// Assign keeps the addresses that a host answers for, gives it unassigned ones, and returns
// all that it has: for model.L2LeaseTime from the moment before it asked. taken are the
// unassigned ones.
func (la *L2Announcers) Assign(ctx context.Context, by Actor, r L2AnnouncerReport) (held, taken []netip.Addr, err error) {
	if err := by.mayReport(r.Host); err != nil {
		return nil, nil, err
	}
	pooled := read(la.ownerView.mu, func() []netip.Addr {
		return slices.DeleteFunc(slices.Clone(r.Able), func(a netip.Addr) bool { _, is := la.ownerView.balancedAddrs.by[a]; return !is })
	})
	r.Able = pooled
	prefers := la.answers.add(r)
	for i, more := 0, true; more && i < maxAnnouncerTransactions; i++ {
		var want []netip.Addr
		known := read(la.hostView.mu, func() bool {
			x := la.hostView.l2Announcers
			mine, known := x.hosts[r.Host]
			want = nil
			for _, a := range r.Able {
				h := x.of[a]
				row, there := x.hosts[h]
				if slices.Contains(mine.addrs, a) || there && h != r.Host && slices.Contains(row.addrs, a) && !x.isExpired(h, row.last) || !prefers(a) {
					continue
				}
				want = append(want, a)
			}
			return known
		})
		if !known && len(want) == 0 && len(held) == 0 {
			return nil, nil, nil
		}
		if len(want) == 0 {
			if held, err = la.batchHeartbeat(ctx, r); !errors.Is(err, errOwnTransaction) {
				return held, taken, err
			}
		}
		if held, more, err = la.assignOnce(ctx, by, r, want); err != nil {
			return nil, taken, err
		}
		for _, a := range want {
			if slices.Contains(held, a) {
				taken = append(taken, a)
			}
		}
	}
	return held, taken, nil
}

// assignOnce is one transaction of Answer; more tells that something is left to do.
func (la *L2Announcers) assignOnce(ctx context.Context, by Actor, r L2AnnouncerReport, want []netip.Addr) (held []netip.Addr, more bool, err error) {
	_, err = la.commits.update(ctx, by, "keep what host "+string(r.Host)+" answers for", func(tx store.Tx) (err error) {
		if err := tx.Prefetch(announcerKeys(r.Host)...); err != nil {
			return err
		}
		held, more, err = la.assignFor(tx, r, want)
		return err
	})
	return held, more, err
}

// announcerKeys are the keys of what assignFor reads in any case.
func announcerKeys(h model.HostName) []string {
	return []string{tables.HostLeases.Key(h), tables.L2Announcers.Key(tables.L2AnnouncerKey{Host: h})}
}

// readAnnouncer reads what a host has, which the report of it may change.
func (la *L2Announcers) readAnnouncer(tx store.Tx, r L2AnnouncerReport) (own tables.L2Announcer, err error) {
	claim, err := tables.HostLeases.Find(tx, r.Host)
	if err != nil {
		return own, err
	}
	if claim.Value.Installation != r.Installation {
		return own, refusedReport{model.Errorf(model.ErrConflict, "host %q is not leased to installation %s", r.Host, r.Installation)}
	}
	row, err := tables.L2Announcers.Find(tx, tables.L2AnnouncerKey{Host: r.Host})
	if err != nil {
		return own, err
	}
	was := row.Value
	if was.Installation == r.Installation && (was.Run > r.Run && !la.isAnnouncerOverdue(was) || was.Run == r.Run && was.Seq > r.Seq) {
		return own, refusedReport{model.Errorf(model.ErrConflict, "host %q has sent a newer report already", r.Host)}
	}
	return was, nil
}

// refusedReport is an error of a report, not of a transaction.
type refusedReport struct{ error }

func (e refusedReport) Unwrap() error { return e.error }

// assignFor is a report's part of a transaction.
func (la *L2Announcers) assignFor(tx store.Tx, r L2AnnouncerReport, want []netip.Addr) (held []netip.Addr, more bool, err error) {
	was, err := la.readAnnouncer(tx, r)
	if err != nil {
		return nil, false, err
	}
	next := tables.L2Announcer{Host: r.Host, Installation: r.Installation, Run: r.Run, Seq: r.Seq}
	gone := 0
	for _, a := range was.Addrs {
		switch _, able := slices.BinarySearchFunc(r.Able, a, netip.Addr.Compare); {
		case able:
			held = append(held, a)
		case gone < addressesPerTransaction:
			gone++
			tables.AnnouncedAddrs.Delete(tx, tables.AnnouncedAddrKey{Addr: a})
		default: // its, though it does not answer
			more = true
			next.Addrs = append(next.Addrs, a)
		}
	}
	former := map[model.HostName]*tables.Row[tables.L2Announcer]{}
	given := 0
	for _, a := range want {
		if slices.Contains(was.Addrs, a) {
			continue
		}
		if given == addressesPerTransaction {
			more = true
			break
		}
		given++
		ok, err := la.takeAddress(tx, r.Host, a, former)
		if err != nil {
			return nil, false, err
		}
		if ok {
			held = append(held, a)
		}
	}
	for _, row := range former {
		if err := putAnnouncer(tx, row.Value); err != nil {
			return nil, false, err
		}
	}
	slices.SortFunc(held, netip.Addr.Compare)
	next.Addrs = append(next.Addrs, held...)
	slices.SortFunc(next.Addrs, netip.Addr.Compare)
	return held, more, putAnnouncer(tx, next)
}

func putAnnouncer(tx store.Tx, a tables.L2Announcer) error {
	if len(a.Addrs) == 0 {
		tables.L2Announcers.Delete(tx, tables.L2AnnouncerKey{Host: a.Host})
		return nil
	}
	return tables.L2Announcers.Put(tx, a)
}

// takeAddress takes an address for a host, unless another one has it; former are the rows
// of hosts that lose some.
func (la *L2Announcers) takeAddress(tx store.Tx, host model.HostName, a netip.Addr, former map[model.HostName]*tables.Row[tables.L2Announcer]) (bool, error) {
	at, err := tables.AnnouncedAddrs.Find(tx, tables.AnnouncedAddrKey{Addr: a})
	if err != nil {
		return false, err
	}
	if h := at.Value.Host; at.Exists() && h != host {
		row := former[h]
		if row == nil {
			x, err := tables.L2Announcers.Find(tx, tables.L2AnnouncerKey{Host: h})
			if err != nil {
				return false, err
			}
			row = &x
		}
		if row.Exists() && slices.Contains(row.Value.Addrs, a) {
			if !la.isAnnouncerOverdue(row.Value) {
				return false, nil
			}
			former[h] = row
			row.Value.Addrs = slices.DeleteFunc(slices.Clone(row.Value.Addrs), func(x netip.Addr) bool { return x == a })
		}
	}
	return true, tables.AnnouncedAddrs.Put(tx, tables.AnnouncedAddr{Addr: a, Host: host})
}

func (la *L2Announcers) isAnnouncerOverdue(a tables.L2Announcer) bool {
	return read(la.hostView.mu, func() bool { return la.hostView.l2Announcers.isExpired(a.Host, announcerHeartbeatOf(a)) })
}
