package ebpf

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// translations are the connections to services: each is entered twice, as the client
// sends it and under the key of the connection behind it, as long as whose it lives.
type translations struct{ held, most atomic.Uint64 }

func (t *translations) fill() (string, driver.TableStats) {
	return "translations", driver.TableStats{Entries: t.held.Load(), Capacity: t.most.Load()}
}

// behind is the key of a translation's connection: make_key of bpf/conntrack.h.
func (t translation) behind() connKey {
	src := t.Front.Lo
	if t.Backend == src { // its own backend
		src = toAddr(desired.ServiceAddr6)
		if t.Backend.netip().Is4() {
			src = toAddr(desired.ServiceAddr)
		}
	}
	k := connKey{Domain: t.Space, Proto: t.Front.Proto, Lo: src, Hi: t.Backend, LoPort: t.BehindPort, HiPort: t.BackendPort}
	if !before(k.Lo, k.Hi, k.LoPort, k.HiPort) {
		k.Lo, k.Hi, k.LoPort, k.HiPort = k.Hi, k.Lo, k.HiPort, k.LoPort
	}
	return k
}

// before orders the ends of a connection.
func before(a, b addr, aPort, bPort uint16) bool {
	for i := 12; i >= 0; i -= 4 {
		if x, y := binary.NativeEndian.Uint32(a[i:]), binary.NativeEndian.Uint32(b[i:]); x != y {
			return x < y
		}
	}
	return aPort <= bPort
}

// sweepTranslations takes out the translations whose connections are not among those that live.
func (d *Driver) sweepTranslations(all map[connKey]connKey, living map[connKey]bool) error {
	for k, behind := range all {
		if living[behind] {
			continue
		}
		// It may have become an open one while they were looked through.
		var c conn
		there := false
		for _, m := range []interface{ Lookup(k, v any) error }{d.obj.Halfopen, d.obj.Conns} {
			err := m.Lookup(behind, &c)
			if err != nil && !isNotExist(err) {
				return fmt.Errorf("read connections: %w", err)
			}
			there = there || err == nil && c.State&connService != 0
		}
		if there {
			continue
		}
		if err := d.obj.Translations.Delete(k); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map translations: %w", err)
		}
		delete(all, k)
	}
	d.translations.held.Store(uint64(len(all)))
	return nil
}

// readTranslations returns the entries, with the keys of their connections, and where
// those are counted.
func (d *Driver) readTranslations() (all map[connKey]connKey, counts map[counted]bool, err error) {
	all, counts = map[connKey]connKey{}, map[counted]bool{}
	err = eachEntry("translations", d.obj.Translations, 1, func(k connKey, t translation) {
		if all[k] = k; k.Pad == asClient || k.Pad == asClientOutside {
			all[k] = t.behind()
			counts[t.counted()] = true
		}
	})
	return all, counts, err
}

// endTranslations takes out those that have ended, as those of services that are gone,
// and the connections behind them: a service that is made anew begins without them, and
// another one that has the same tuple behind it finds it free.
func (d *Driver) endTranslations(ended func(translation) bool) error {
	var left []connKey
	behind := map[connKey]bool{}
	if err := eachEntry("translations", d.obj.Translations, 1, func(k connKey, t translation) {
		if !ended(t) {
			return
		}
		if left = append(left, k); k.Pad == asClient || k.Pad == asClientOutside {
			behind[t.behind()] = true
		}
	}); err != nil || len(left) == 0 {
		return err
	}
	if err := deleteAll("translations", d.obj.Translations, left); err != nil {
		return writeError{err}
	}
	if err := d.conns.sweep(func(k connKey, _ conn) bool { return behind[k] }); err != nil {
		return writeError{err}
	}
	return nil
}

// sweepAffines forgets the clients whose time is over, and counts the others by their
// services.
func (d *Driver) sweepAffines(now uint64) error {
	d.mu.Lock()
	lasts := map[uint64]time.Duration{}
	for _, s := range d.services.have {
		lasts[s.Seed] = time.Duration(s.Affinity)
	}
	d.mu.Unlock()
	counts := map[uint64]uint32{}
	err := sweepMap(d, d.affines, 1, func(k affineKey, a affine) bool {
		if now > a.Last && now-a.Last >= uint64(lasts[k.Seed]) {
			return true
		}
		counts[k.Seed]++
		return false
	})
	if err != nil {
		return err
	}
	var gone []uint64
	if err := eachEntry("affine_counts", d.obj.AffineCounts, 1, func(seed uint64, _ uint32) {
		if counts[seed] == 0 {
			gone = append(gone, seed)
		}
	}); err != nil {
		return err
	}
	for _, seed := range gone {
		if err := d.obj.AffineCounts.Delete(seed); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map affine_counts: %w", err)
		}
	}
	for seed, n := range counts {
		if err := d.obj.AffineCounts.Put(seed, n); err != nil && !isFull(err) {
			return fmt.Errorf("write map affine_counts: %w", err)
		}
	}
	return nil
}

// forgetClients takes out who stays with which backend of services that are gone, and
// what is counted of them. No packet is led there any more.
func (p *applyRun) forgetClients(gone map[uint64]bool) error {
	if len(gone) == 0 {
		return nil
	}
	var left []affineKey
	if err := eachEntry("affines", p.obj.Affines, 1, func(k affineKey, _ affine) {
		if gone[k.Seed] {
			left = append(left, k)
		}
	}); err != nil {
		return err
	}
	if err := deleteAll("affines", p.obj.Affines, left); err != nil {
		return writeError{err}
	}
	if err := p.freeCounterSlots(func(c counted) bool { return gone[c.Seed] }); err != nil {
		return writeError{err}
	}
	for seed := range gone {
		if err := p.obj.AffineCounts.Delete(seed); err != nil && !isNotExist(err) {
			return writeError{fmt.Errorf("write map affine_counts: %w", err)}
		}
	}
	return nil
}
