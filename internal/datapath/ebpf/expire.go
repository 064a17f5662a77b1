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

// expireEvery is how often dead connections are taken out; the programs
// themselves do not take them for alive in the meantime. roomEvery is how often
// it is asked whether there is room for open ones.
const (
	expireEvery = 10 * time.Second
	roomEvery   = time.Second
)

// maintain takes out what nobody needs any more.
func (d *Driver) maintain(ctx context.Context) {
	defer d.wg.Done()
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for n := time.Duration(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n%(expireEvery/roomEvery) != 0 && !d.conns.short() {
			continue
		}
		d.mu.Lock()
		d.purgeDoomed(time.Now().Add(-doomedGrace))
		d.mu.Unlock()
		now, err := monotonic()
		if err == nil {
			err = d.countTables(now)
		}
		if err != nil {
			d.cfg.Log.Warn("expire connections", "error", err)
			continue
		}
		for _, f := range d.fills() {
			d.warn(f, time.Now())
		}
	}
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
