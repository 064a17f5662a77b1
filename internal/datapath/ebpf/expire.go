package ebpf

import (
	"context"
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

func isNotExist(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }

func cpus() int {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return 1
	}
	return n
}

// expiryInterval is how often dead connections are taken out; the programs
// themselves do not take them for alive in the meantime. capacityCheckInterval is how often
// it is asked whether there is room for open ones.
const (
	expiryInterval        = 10 * time.Second
	capacityCheckInterval = time.Second
)

// maintain removes entries that are no longer needed.
func (d *Driver) maintain(ctx context.Context) {
	defer d.wg.Done()
	tick := time.NewTicker(capacityCheckInterval)
	defer tick.Stop()
	for n := time.Duration(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n%(expiryInterval/capacityCheckInterval) != 0 && !d.dp.conns.isNearlyFull() {
			continue
		}
		d.mu.Lock()
		d.dp.policies.purgeStale(time.Now().Add(-staleGrace))
		d.mu.Unlock()
		now, err := monotonic()
		if err == nil {
			err = d.countTables(now)
		}
		if err != nil {
			d.cfg.Log.Warn("expire connections", "error", err)
			continue
		}
		for _, f := range d.dp.fills() {
			f.warn(d.cfg.Log, time.Now())
		}
	}
}

// countTables deletes expired entries of the maps that evict, and counts the rest. It does
// not hold Driver.mu while it reads maps.
func (d *Driver) countTables(now uint64) error {
	dp := d.dp
	d.mu.Lock()
	moved := dp.endpoints.takeMoved()
	d.mu.Unlock()
	translated, counts, err := dp.conntrack.translations.read() // before: whose connections are not there afterwards, have ended
	living := map[connKey]bool{}
	if err == nil {
		err = dp.conns.sweep(func(k connKey, c conn) bool {
			dead := expired(k, c, now) || moved.between(k, c)
			if !dead && c.State&connService != 0 {
				living[k] = true
			}
			return dead
		})
	}
	if err != nil {
		d.mu.Lock()
		dp.endpoints.returnMoved(moved)
		d.mu.Unlock()
	} else {
		err = errors.Join(dp.conntrack.translations.sweep(translated, living), d.sweepServiceCounters(counts))
	}
	return errors.Join(err, d.sweepAffinities(now),
		sweepMap(dp.conntrack.frags, 1, func(_ fragKey, f frag) bool { return now > f.Seen && now-f.Seen > uint64(fragLife) }),
		sweepMap(dp.counters.hits, cpus(), func(uint64, counter) bool { return false }),
	)
}

// sweepServiceCounters frees the counters that no service needs.
func (d *Driver) sweepServiceCounters(living map[serviceCounterKey]bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || !d.dp.applied.known { // it is not known yet whose they are
		return nil
	}
	return d.dp.services.counts.sweep(d.dp.services.seeds(), living)
}

func (d *Driver) sweepAffinities(now uint64) error {
	d.mu.Lock()
	times := d.dp.services.affinityTimes()
	d.mu.Unlock()
	return d.dp.services.affinities.sweep(now, times)
}

func monotonic() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, err
	}
	return uint64(ts.Nano()), nil
}

// expired is timeout() of bpf/conntrack.h.
func expired(k connKey, c conn, now uint64) bool {
	const fins = connFin | connFinReply
	limit := 60 * time.Second
	switch model.Protocol(k.Proto) {
	case model.ProtoTCP:
		switch {
		case c.State&connReset != 0 || c.State&fins == fins:
			limit = 30 * time.Second
		case c.State&connOpen != 0 && c.State&fins == 0:
			limit = 8 * time.Hour
		default:
			limit = 120 * time.Second
		}
	case model.ProtoICMP, model.ProtoICMPv6:
		limit = 30 * time.Second
	default:
		if c.State&connReplied != 0 {
			limit = 180 * time.Second
		}
	}
	return now > c.Seen && now-c.Seen > uint64(limit)
}
