package ebpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// translations are the connections to services: each is entered twice, as the client
// sends it and under the key of the connection behind it, as long as whose it lives.
type translations struct {
	m             *ebpf.Map
	conns         *connections
	entries, most atomic.Uint64
}

func newTranslations(m *ebpf.Map, conns *connections) *translations {
	t := &translations{m: m, conns: conns}
	t.most.Store(uint64(m.MaxEntries()))
	return t
}

func (t *translations) fill() (string, driver.TableStats) {
	return "translations", driver.TableStats{Entries: t.entries.Load(), Capacity: t.most.Load()}
}

// relayAddrs are the host's relay addresses: relay_ip of bpf/hostegress.h.
func (t *translations) relayAddrs() (v4, v6 addr, err error) {
	var s settings
	if err := t.conns.obj.Settings.Lookup(uint32(0), &s); err != nil {
		return v4, v6, fmt.Errorf("read settings: %w", err)
	}
	a := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, s.HostIP))).Prev()
	if !a.IsValid() { // there is no egress
		return v4, v6, nil
	}
	v4, v6 = toAddr(a), s.Private6
	copy(v6[12:], v4[12:])
	return v4, v6, nil
}

// connectionKey is the key of a translation's connection: make_key of bpf/conntrack.h. It gets
// the relay addresses.
func (t translation) connectionKey(relay4, relay6 addr) connKey {
	src := t.ClientKey.Lo
	switch {
	case t.ClientKey.Pad == clientSideExternal && t.Index&externalBackend != 0:
		if src = relay6; t.Backend.netip().Is4() {
			src = relay4
		}
	case t.Backend == src: // its own backend
		src = toAddr(desired.ServiceAddr6)
		if t.Backend.netip().Is4() {
			src = toAddr(desired.ServiceAddr)
		}
	}
	k := connKey{Domain: t.ConnDomain, Proto: t.ClientKey.Proto, Lo: src, Hi: t.Backend, LoPort: t.NATPort, HiPort: t.BackendPort}
	if !isBefore(k.Lo, k.Hi, k.LoPort, k.HiPort) {
		k.Lo, k.Hi, k.LoPort, k.HiPort = k.Hi, k.Lo, k.HiPort, k.LoPort
	}
	return k
}

// isBefore orders the ends of a connection.
func isBefore(a, b addr, aPort, bPort uint16) bool {
	for i := 12; i >= 0; i -= 4 {
		if x, y := binary.NativeEndian.Uint32(a[i:]), binary.NativeEndian.Uint32(b[i:]); x != y {
			return x < y
		}
	}
	return aPort <= bPort
}

// sweep removes the translations without an established connection.
func (t *translations) sweep(all map[connKey]connKey, living map[connKey]bool) error {
	for k, behind := range all {
		if living[behind] {
			continue
		}
		// It may have become an open one while they were looked through.
		var c conn
		there := false
		for _, m := range []interface{ Lookup(k, v any) error }{t.conns.obj.Halfopen, t.conns.obj.Conns} {
			err := m.Lookup(behind, &c)
			if err != nil && !isNotExist(err) {
				return fmt.Errorf("read connections: %w", err)
			}
			there = there || err == nil && c.State&connService != 0
		}
		if there {
			continue
		}
		if err := t.m.Delete(k); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map translations: %w", err)
		}
		delete(all, k)
	}
	t.entries.Store(uint64(len(all)))
	return nil
}

// read returns the entries, with the keys of their connections, and where
// those are counted.
func (t *translations) read() (all map[connKey]connKey, counts map[serviceCounterKey]bool, err error) {
	relay4, relay6, err := t.relayAddrs()
	if err != nil {
		return nil, nil, err
	}
	all, counts = map[connKey]connKey{}, map[serviceCounterKey]bool{}
	err = eachEntry("translations", t.m, 1, func(k connKey, t translation) {
		if all[k] = k; k.Pad == clientSide || k.Pad == clientSideExternal {
			all[k] = t.connectionKey(relay4, relay6)
			counts[t.counted()] = true
		}
	})
	return all, counts, err
}

// end removes ended translations, such as those of deleted services, and the connections
// behind them: a recreated service starts without them, and another one with the same tuple
// behind it finds it free.
func (t *translations) end(ended func(translation) bool) error {
	relay4, relay6, err := t.relayAddrs()
	if err != nil {
		return err
	}
	var left []connKey
	behind := map[connKey]bool{}
	if err = eachEntry("translations", t.m, 1, func(k connKey, t translation) {
		if !ended(t) {
			return
		}
		if left = append(left, k); k.Pad == clientSide || k.Pad == clientSideExternal {
			behind[t.connectionKey(relay4, relay6)] = true
		}
	}); err != nil || len(left) == 0 {
		return err
	}
	if err := deleteAll("translations", t.m, left); err != nil {
		return writeError{err}
	}
	// A connection that an endpoint left behind may have made room for another one, without a service.
	if err := t.conns.sweep(func(k connKey, c conn) bool { return behind[k] && c.State&connService != 0 }); err != nil {
		return writeError{err}
	}
	return nil
}

// affinities are the clients that stay with a backend of a service. The programs add
// entries.
type affinities struct {
	lru    *lru
	counts *ebpf.Map // clients by the seed of the service
}

func newAffinities(o *objects) *affinities {
	return &affinities{newLRU("affines", o.Affines, o.Created, createdAffine, false), o.AffineCounts}
}

// sweep forgets the clients whose time is over, and counts the others by their services.
// It gets the times by the seeds of services.
func (a *affinities) sweep(now uint64, times map[uint64]time.Duration) error {
	counts := map[uint64]uint32{}
	err := sweepMap(a.lru, 1, func(k affineKey, x affine) bool {
		if now > x.Last && now-x.Last >= uint64(times[k.Seed]) {
			return true
		}
		counts[k.Seed]++
		return false
	})
	if err != nil {
		return err
	}
	var gone []uint64
	if err := eachEntry("affine_counts", a.counts, 1, func(seed uint64, _ uint32) {
		if counts[seed] == 0 {
			gone = append(gone, seed)
		}
	}); err != nil {
		return err
	}
	for _, seed := range gone {
		if err := a.counts.Delete(seed); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map affine_counts: %w", err)
		}
	}
	for seed, n := range counts {
		if err := a.counts.Put(seed, n); err != nil && !isFull(err) {
			return fmt.Errorf("write map affine_counts: %w", err)
		}
	}
	return nil
}

// forget takes out who stays with which backend of services that are gone, by their seeds.
// No packet is led there any more.
func (a *affinities) forget(gone map[uint64]bool) error {
	var left []affineKey
	if err := eachEntry("affines", a.lru.m, 1, func(k affineKey, _ affine) {
		if gone[k.Seed] {
			left = append(left, k)
		}
	}); err != nil {
		return err
	}
	if err := deleteAll("affines", a.lru.m, left); err != nil {
		return writeError{err}
	}
	for seed := range gone {
		if err := a.counts.Delete(seed); err != nil && !isNotExist(err) {
			return writeError{fmt.Errorf("write map affine_counts: %w", err)}
		}
	}
	return nil
}
