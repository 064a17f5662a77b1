package ebpf

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The layouts of bpf/servicecounters.h.

// serviceCounterKey is who has a place where connections to a service are counted.
type serviceCounterKey struct {
	ID            uint64 // 0 = free
	Seed, Backend uint64 // numbers of the service and the backend
	What          uint64 // its port, protocol and family
}

type serviceCounter struct {
	Out, In counter
	Begun   uint64
}

// isComplete reports whether all of a place is written: its id follows from the rest, as
// counted_at has it.
func (c serviceCounterKey) isComplete() bool {
	id := desired.Mix(c.Seed ^ desired.Mix(c.Backend^desired.Mix(c.What)))
	return c.ID == max(id, 1)
}

func (c serviceCounterKey) counterKeyOf(key model.ServiceKey, backend model.EndpointKey) driver.ServiceOf {
	return driver.ServiceOf{Service: key, Port: uint16(c.What >> 16), Protocol: model.Protocol(uint8(c.What >> 8)), IPv6: c.What&1 != 0, Backend: backend}
}

// counted is where a connection is counted, but for the place.
func (t translation) counted() serviceCounterKey {
	what := uint64(t.ClientKey.HiPort)<<16 | uint64(t.ClientKey.Proto)<<8
	if !t.Backend.netip().Is4() {
		what |= 1
	}
	return serviceCounterKey{Seed: t.Seed, Backend: t.ID, What: what}
}

// serviceCounters are the counters of connections to services. The programs allocate them,
// the driver frees them and knows the backends by name.
type serviceCounters struct {
	counted       *ebpf.Map
	counters      *ebpf.Map
	names         map[uint64]model.EndpointKey // of counted backends, also of ones that have left
	entries, most atomic.Uint64
}

func (s *serviceCounters) fill() (string, driver.TableStats) {
	return "counted", driver.TableStats{Entries: s.entries.Load(), Capacity: s.most.Load()}
}

func newServiceCounters(o *objects) *serviceCounters {
	s := &serviceCounters{counted: o.Counted, counters: o.ServedCounters, names: map[uint64]model.EndpointKey{}}
	s.most.Store(uint64(o.Counted.MaxEntries()) - 1) // place 0 is unused
	return s
}

// slots calls fn for every allocated counter.
func (s *serviceCounters) slots(fn func(at uint32, c serviceCounterKey)) error {
	return eachEntry("counted", s.counted, 1, func(at uint32, c serviceCounterKey) {
		if c.ID != 0 && c.isComplete() {
			fn(at, c)
		}
	})
}

// established tells how many connections to services live, by where they are counted.
func (t *translations) established() (map[serviceCounterKey]uint64, error) {
	living := map[serviceCounterKey]uint64{}
	return living, eachEntry("translations", t.m, 1, func(k connKey, t translation) {
		if k.Pad == clientSide || k.Pad == clientSideExternal {
			living[t.counted()]++
		}
	})
}

// stats returns the counts of a host's services, which it gets by their seeds. living is
// the number of established connections. A backend that is gone counts while its name is
// known.
func (s *serviceCounters) stats(host *desired.Host, services map[uint64]model.ServiceKey, living map[serviceCounterKey]uint64) (map[driver.ServiceOf]driver.ServiceStats, error) {
	out := map[driver.ServiceOf]driver.ServiceStats{}
	if len(services) == 0 {
		return out, nil
	}
	at := map[uint32]serviceCounterKey{}
	if err := s.slots(func(place uint32, c serviceCounterKey) { at[place] = c }); err != nil {
		return out, err
	}
	s.nameBackends(host, services, slices.Concat(slices.Collect(maps.Values(at)), slices.Collect(maps.Keys(living))))
	for place, c := range at {
		key, there := services[c.Seed]
		name, known := s.names[c.Backend]
		if !there || !known {
			continue
		}
		var per []serviceCounter
		if err := s.counters.Lookup(place, &per); err != nil {
			return out, fmt.Errorf("ebpf driver: read map served_counters: %w", err)
		}
		sum := driver.ServiceStats{}
		for _, n := range per {
			sum.Add(driver.ServiceStats{
				Total: n.Begun, PacketsOut: n.Out.Packets, BytesOut: n.Out.Bytes, PacketsIn: n.In.Packets, BytesIn: n.In.Bytes,
			})
		}
		of := c.counterKeyOf(key, name)
		sum.Add(out[of]) // two places of the same are not forbidden
		out[of] = sum
	}
	for c, n := range living { // also of backends without a place
		key, there := services[c.Seed]
		name, known := s.names[c.Backend]
		if !there || !known {
			continue
		}
		of := c.counterKeyOf(key, name)
		sum := out[of]
		sum.Connections = n
		out[of] = sum
	}
	return out, nil
}

// nameBackends learns whose the places and the connections are.
func (s *serviceCounters) nameBackends(host *desired.Host, services map[uint64]model.ServiceKey, at []serviceCounterKey) {
	todo := map[uint64]bool{} // services with backends that have no name yet
	for _, c := range at {
		if _, known := s.names[c.Backend]; !known {
			todo[c.Seed] = true
		}
	}
	for seed := range todo {
		x, ok := host.Services.Get(services[seed])
		if !ok {
			continue
		}
		for key := range x.Backends.All() {
			s.names[desired.BackendID(key)] = key
		}
	}
}

// free gives back the places that unused says, and counts the others.
func (s *serviceCounters) free(unused func(serviceCounterKey) bool) error {
	var free []uint32
	names := map[uint64]bool{}
	held := uint64(0)
	err := s.slots(func(at uint32, c serviceCounterKey) {
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
	zero := make([]serviceCounter, cpus())
	for _, at := range free { // the place last: who takes it finds nothing counted
		if err := s.counters.Put(at, zero); err != nil {
			return fmt.Errorf("write map served_counters: %w", err)
		}
		if err := s.counted.Put(at, serviceCounterKey{}); err != nil {
			return fmt.Errorf("write map counted: %w", err)
		}
	}
	for id := range s.names {
		if !names[id] {
			delete(s.names, id)
		}
	}
	s.entries.Store(held)
	return nil
}

// sweep frees the counters of services that are gone, and of backends that are gone and
// have no connections. It gets the services by their seeds.
func (s *serviceCounters) sweep(services map[uint64]*servedService, living map[serviceCounterKey]bool) error {
	return s.free(func(c serviceCounterKey) bool {
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
