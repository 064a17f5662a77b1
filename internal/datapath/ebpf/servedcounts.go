package ebpf

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The layouts of bpf/counted.h.

// counted is who has a place where connections to a service are counted.
type counted struct {
	ID            uint64 // 0 = free
	Seed, Backend uint64 // numbers of the service and the backend
	What          uint64 // its port, protocol and family
}

type servedCounter struct {
	Out, In counter
	Begun   uint64
}

// whole tells whether all of a place is written: its id follows from the rest, as
// counted_at has it.
func (c counted) whole() bool {
	id := desired.Mix(c.Seed ^ desired.Mix(c.Backend^desired.Mix(c.What)))
	return c.ID == max(id, 1)
}

func (c counted) of(key model.ServiceKey, backend model.EndpointKey) driver.ServiceOf {
	return driver.ServiceOf{Service: key, Port: uint16(c.What >> 16), Protocol: model.Protocol(uint8(c.What >> 8)), IPv6: c.What&1 != 0, Backend: backend}
}

// counted is where a connection is counted, but for the place.
func (t translation) counted() counted {
	what := uint64(t.Front.HiPort)<<16 | uint64(t.Front.Proto)<<8
	if !t.Backend.netip().Is4() {
		what |= 1
	}
	return counted{Seed: t.Seed, Backend: t.ID, What: what}
}

// servedCounts are what the driver knows of places besides what the maps hold.
type servedCounts struct {
	names      map[uint64]model.EndpointKey // of backends that were counted, those that have left too
	held, most atomic.Uint64
}

func (s *servedCounts) fill() (string, driver.TableStats) {
	return "counted", driver.TableStats{Entries: s.held.Load(), Capacity: s.most.Load()}
}

// counterSlots calls fn for every place that is taken.
func (d *Driver) counterSlots(fn func(at uint32, c counted)) error {
	return eachEntry("counted", d.obj.Counted, 1, func(at uint32, c counted) {
		if c.ID != 0 && c.whole() {
			fn(at, c)
		}
	})
}

// establishedServices tells how many connections to services live, by where they are counted.
func (d *Driver) establishedServices() (map[counted]uint64, error) {
	living := map[counted]uint64{}
	return living, eachEntry("translations", d.obj.Translations, 1, func(k connKey, t translation) {
		if k.Pad == asClient || k.Pad == asClientOutside {
			living[t.counted()]++
		}
	})
}

// serviceStats are the counts of the services that there are, of whose connections
// so many live. Of a backend that has left they are told while it is known whose they
// were.
func (d *Driver) serviceStats(living map[counted]uint64) (map[driver.ServiceOf]driver.ServiceStats, error) {
	out := map[driver.ServiceOf]driver.ServiceStats{}
	if len(d.serving.of) == 0 {
		return out, nil
	}
	services := map[uint64]model.ServiceKey{}
	for key, x := range d.serving.of {
		services[x.seed] = key
	}
	at := map[uint32]counted{}
	if err := d.counterSlots(func(place uint32, c counted) { at[place] = c }); err != nil {
		return out, err
	}
	d.nameBackends(services, slices.Concat(slices.Collect(maps.Values(at)), slices.Collect(maps.Keys(living))))
	for place, c := range at {
		key, there := services[c.Seed]
		name, known := d.counts.names[c.Backend]
		if !there || !known {
			continue
		}
		var per []servedCounter
		if err := d.obj.ServedCounters.Lookup(place, &per); err != nil {
			return out, fmt.Errorf("ebpf driver: read map served_counters: %w", err)
		}
		sum := driver.ServiceStats{}
		for _, n := range per {
			sum.Add(driver.ServiceStats{
				Total: n.Begun, PacketsOut: n.Out.Packets, BytesOut: n.Out.Bytes, PacketsIn: n.In.Packets, BytesIn: n.In.Bytes,
			})
		}
		of := c.of(key, name)
		sum.Add(out[of]) // two places of the same are not forbidden
		out[of] = sum
	}
	for c, n := range living { // also of those that have no place
		key, there := services[c.Seed]
		name, known := d.counts.names[c.Backend]
		if !there || !known {
			continue
		}
		of := c.of(key, name)
		s := out[of]
		s.Connections = n
		out[of] = s
	}
	return out, nil
}

// nameBackends learns whose the places and the connections are.
func (d *Driver) nameBackends(services map[uint64]model.ServiceKey, at []counted) {
	todo := map[uint64]bool{} // services with backends that have no name yet
	for _, c := range at {
		if _, known := d.counts.names[c.Backend]; !known {
			todo[c.Seed] = true
		}
	}
	for seed := range todo {
		s, ok := d.last.Services.Get(services[seed])
		if !ok {
			continue
		}
		for key := range s.Backends.All() {
			d.counts.names[desired.BackendID(key)] = key
		}
	}
}

// freeCounterSlots gives back the places that unused says, and counts the others.
func (d *Driver) freeCounterSlots(unused func(counted) bool) error {
	var free []uint32
	names := map[uint64]bool{}
	held := uint64(0)
	err := d.counterSlots(func(at uint32, c counted) {
		if unused(c) {
			free = append(free, at)
			return
		}
		held++
		names[c.Backend] = true
	})
	if err != nil {
		return err
	}
	zero := make([]servedCounter, cpus())
	for _, at := range free { // the place last: who takes it finds nothing counted
		if err := d.obj.ServedCounters.Put(at, zero); err != nil {
			return fmt.Errorf("write map served_counters: %w", err)
		}
		if err := d.obj.Counted.Put(at, counted{}); err != nil {
			return fmt.Errorf("write map counted: %w", err)
		}
	}
	for id := range d.counts.names {
		if !names[id] {
			delete(d.counts.names, id)
		}
	}
	d.counts.held.Store(held)
	return nil
}

// sweepCounterSlots gives back the places of services that are gone, and of backends that
// have left and have no connections any more.
func (d *Driver) sweepCounterSlots(living map[counted]bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || !d.known { // it is not known yet whose they are
		return nil
	}
	services := map[uint64]*servedService{}
	for _, x := range d.serving.of {
		services[x.seed] = x
	}
	return d.freeCounterSlots(func(c counted) bool {
		x := services[c.Seed]
		if x == nil {
			return true
		}
		if _, there := x.index[c.Backend]; there {
			return false
		}
		c.ID = 0
		return !living[c]
	})
}
