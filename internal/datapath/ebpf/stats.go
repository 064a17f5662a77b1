package ebpf

import (
	"context"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// dropNames are enum drop_reason of bpf/maps.h.
var dropNames = []string{
	"", driver.DropNoPort, driver.DropNetwork, driver.DropSpoof, driver.DropUnknownSource,
	driver.DropUnknownDest, driver.DropPolicy, driver.DropInvalid, driver.DropNotIP,
	driver.DropTooBig,
	driver.DropTTL,
	driver.DropNoProvider,
}

// Stats implements driver.Driver. Counters live in the maps: they outlast the process, and
// a port's start at zero when it is plugged in. Potentially large ones, the counters of
// rules and of connections to services, are read before the driver's lock is taken, so that
// no caller waits for them.
func (d *Driver) Stats(ctx context.Context) (driver.Stats, error) {
	out := driver.Stats{
		Ports: map[string]driver.PortStats{}, Rules: map[string]driver.RuleStats{}, Drops: map[string]uint64{},
	}
	hits, living, err := d.readLargeMaps(ctx)
	if err != nil {
		return out, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkOpen(ctx); err != nil {
		return out, err
	}
	dp := d.dp
	for name, index := range dp.ports.indexes {
		s := driver.PortStats{Endpoint: dp.ports.endpoint[name]}
		if o, ok := dp.ports.Ports.have[uint32(index)]; ok { // not shut
			if err := dp.counters.addPort(&s, o.Slot); err != nil {
				return out, err
			}
		}
		out.Ports[name] = s
	}
	for id, c := range hits {
		if name, ok := dp.policies.ruleIDs[id]; ok {
			out.Rules[name] = driver.RuleStats(c)
		}
	}
	if out.Drops, err = dp.counters.drops(); err != nil {
		return out, err
	}
	services := map[uint64]model.ServiceKey{}
	for key, x := range dp.services.of {
		services[x.seed] = key
	}
	out.Services, err = dp.services.counts.stats(&dp.applied.host, services, living)
	return out, err
}

// counters are the counters of ports, rules and drops. They need no lock.
type counters struct {
	obj  *objects
	hits *lru
}

func newCounters(o *objects) *counters {
	return &counters{o, newLRU("hits", o.Hits, o.Created, createdHit, true)} // counters of rules that are no more go first
}

// addPort adds the counters of a port.
func (c *counters) addPort(s *driver.PortStats, slot uint32) error {
	var per []portCounter
	if err := c.obj.PortCounters.Lookup(slot, &per); err != nil {
		return fmt.Errorf("ebpf driver: read map port_counters: %w", err)
	}
	for _, n := range per {
		s.RxPackets += n.Rx.Packets
		s.RxBytes += n.Rx.Bytes
		s.TxPackets += n.Tx.Packets
		s.TxBytes += n.Tx.Bytes
	}
	return nil
}

// drops returns the dropped packets by reason.
func (c *counters) drops() (map[string]uint64, error) {
	out := map[string]uint64{}
	for reason, name := range dropNames {
		var per []uint64
		if err := c.obj.Drops.Lookup(uint32(reason), &per); err != nil {
			return out, fmt.Errorf("ebpf driver: read map drops: %w", err)
		}
		var sum uint64
		for _, n := range per {
			sum += n
		}
		if sum > 0 && name != "" {
			out[name] = sum
		}
	}
	return out, nil
}

// checkOpen reports whether ctx has ended or the driver is closed; d.mu is held.
func (d *Driver) checkOpen(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.closed {
		return model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	return nil
}

// readLargeMaps reads what Stats needs of large maps, which stay open meanwhile: what was
// counted for each rule, and how many connections to services live.
func (d *Driver) readLargeMaps(ctx context.Context) (hits map[uint64]counter, living map[serviceCounterKey]uint64, err error) {
	d.mu.Lock()
	if err := d.checkOpen(ctx); err != nil {
		d.mu.Unlock()
		return nil, nil, err
	}
	serves := len(d.dp.services.of) > 0
	d.reading.RLock()
	defer d.reading.RUnlock()
	d.mu.Unlock()
	if hits, err = d.dp.counters.rules(); err != nil || !serves {
		return hits, nil, err
	}
	living, err = d.dp.conntrack.translations.established()
	return hits, living, err
}

// rules adds up what was counted for each rule: by processors on their
// own (tallies), and where a rule has no tally (hits). A tally that went to
// another rule in between would be missed, so all is read again then.
func (c *counters) rules() (out map[uint64]counter, err error) {
	add := func(id uint64, n counter) {
		sum := out[id]
		out[id] = counter{sum.Packets + n.Packets, sum.Bytes + n.Bytes}
	}
	kept := func(a, b ruleTally) bool { return a.ID == 0 || a.ID == b.ID }
	before, err := c.readTallies()
	for range 3 { // a tally moves when nothing has hit its rule for a second at least
		if err != nil {
			return nil, err
		}
		out = map[uint64]counter{}
		var id uint64
		var per []counter
		it := c.obj.Hits.Iterate()
		for it.Next(&id, &per) {
			for _, n := range per {
				add(id, n)
			}
		}
		if err := it.Err(); err != nil {
			return nil, fmt.Errorf("ebpf driver: read map hits: %w", err)
		}
		was := before
		before, err = c.readTallies()
		if slices.EqualFunc(was, before, kept) {
			break
		}
	}
	for _, t := range before {
		add(t.ID, t.N)
	}
	return out, err
}

// readTallies returns those of all processors.
func (c *counters) readTallies() ([]ruleTally, error) {
	most, width := int(c.obj.Tallies.MaxEntries()), cpus()
	keys, out := make([]uint32, most), make([]ruleTally, most*width)
	var cur ebpf.MapBatchCursor
	if _, err := c.obj.Tallies.BatchLookup(&cur, keys, out, nil); err != nil && !isNotExist(err) {
		return nil, fmt.Errorf("ebpf driver: read map tallies: %w", err)
	}
	return out, nil
}

// Tables implements driver.TableReporter. Tables that the driver fills know their sizes; tables
// that packets fill are counted every expireEvery, when expired entries are removed. So
// neither lock nor map is waited for.
func (d *Driver) Tables() map[string]driver.TableStats {
	out := map[string]driver.TableStats{}
	for _, t := range d.dp.tables.filled {
		name, s := t.fill()
		out[name] = s
	}
	for _, f := range d.dp.fills() {
		out[f.name] = f.stats()
	}
	return out
}
