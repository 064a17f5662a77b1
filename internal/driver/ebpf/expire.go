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
// themselves do not take them for alive in the meantime.
const expireEvery = 10 * time.Second

// maintain takes out what nobody needs any more.
func (d *Driver) maintain(ctx context.Context) {
	defer d.wg.Done()
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		d.purgeDoomed(time.Now().Add(-doomedGrace))
		d.mu.Unlock()
		now, err := monotonic()
		if err == nil {
			err = d.countTables(now)
		}
		if err != nil {
			d.cfg.Log.Warn("expire connections", "err", err)
			continue
		}
		for _, l := range []*lru{&d.conns, &d.frags, &d.hits} {
			d.warn(l, time.Now())
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
	limit := 60 * time.Second
	switch {
	case model.Protocol(k.Proto) == model.ProtoTCP && c.State&connClosed != 0:
		limit = 30 * time.Second
	case model.Protocol(k.Proto) == model.ProtoTCP && c.State&connReplied != 0:
		limit = 8 * time.Hour
	case model.Protocol(k.Proto) == model.ProtoTCP:
		limit = 120 * time.Second
	case model.Protocol(k.Proto) == model.ProtoICMP, model.Protocol(k.Proto) == model.ProtoICMPv6:
		limit = 30 * time.Second
	case c.State&connReplied != 0:
		limit = 180 * time.Second
	}
	return now > c.Seen && now-c.Seen > uint64(limit)
}

// forgetGone drops the connections of addresses that are nobody's, or somebody
// else's, now.
func (d *Driver) forgetGone() error {
	if len(d.gone) == 0 {
		return nil
	}
	err := d.dropConns(func(k connKey, _ conn) bool {
		return d.gone[hostKey{k.Net, k.Lo}] || d.gone[hostKey{k.Net, k.Hi}]
	})
	if err == nil {
		clear(d.gone)
	}
	return err
}
