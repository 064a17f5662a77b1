package ebpf

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// dropNames are enum drop_reason of bpf/maps.h.
var dropNames = []string{
	"", driver.DropNoPort, driver.DropNetwork, driver.DropSpoof, driver.DropUnknownSource,
	driver.DropUnknownDest, driver.DropPolicy, driver.DropInvalid, driver.DropNotIP,
	driver.DropTooBig,
}

// Stats implements driver.Driver. Counters live in the maps: they outlast the
// process, and those of a port begin anew when it is plugged in.
func (d *Driver) Stats(ctx context.Context) (driver.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := driver.Stats{
		Ports: map[string]driver.PortStats{}, Rules: map[string]driver.RuleStats{}, Drops: map[string]uint64{},
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	if d.closed {
		return out, model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	for name, index := range d.indexes {
		s := driver.PortStats{Endpoint: d.endpoint[name]}
		var per []portCounter
		if o, ok := d.ports.have[uint32(index)]; ok { // not shut
			if err := d.obj.PortCounters.Lookup(o.Slot, &per); err != nil {
				return out, fmt.Errorf("ebpf driver: read map port_counters: %w", err)
			}
		}
		for _, c := range per {
			s.RxPackets += c.Rx.Packets
			s.RxBytes += c.Rx.Bytes
			s.TxPackets += c.Tx.Packets
			s.TxBytes += c.Tx.Bytes
		}
		out.Ports[name] = s
	}
	var id uint64
	var hits []counter
	it := d.obj.Hits.Iterate()
	for it.Next(&id, &hits) {
		name, ok := d.ruleIDs[id]
		if !ok {
			continue
		}
		s := out.Rules[name]
		for _, c := range hits {
			s.Packets += c.Packets
			s.Bytes += c.Bytes
		}
		out.Rules[name] = s
	}
	if err := it.Err(); err != nil {
		return out, fmt.Errorf("ebpf driver: read map hits: %w", err)
	}
	for reason, name := range dropNames {
		var per []uint64
		if err := d.obj.Drops.Lookup(uint32(reason), &per); err != nil {
			return out, fmt.Errorf("ebpf driver: read map drops: %w", err)
		}
		var sum uint64
		for _, n := range per {
			sum += n
		}
		if sum > 0 && name != "" {
			out.Drops[name] = sum
		}
	}
	return out, nil
}

// Tables implements driver.Tabled.
func (d *Driver) Tables() map[string]driver.TableStats {
	out := map[string]driver.TableStats{}
	for _, l := range []*lru{&d.conns, &d.frags, &d.hits} {
		out[l.name] = l.stats()
	}
	return out
}
