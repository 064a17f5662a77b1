package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// nearlyFullAt is the number of entries from which a map of a size has little room: 80 %.
func nearlyFullAt(size uint32) uint32 { return uint32(uint64(size) * 4 / 5) }

// connections are the maps of connections, of which each owner has a share
// (bpf/connshares.h). The programs evict half-open ones, the driver open ones; the
// kernel does what the driver does not get to.
type connections struct {
	half, open fill
	obj        *objects
	given      []ownerShare // as the programs read it
	before     uint64       // evicted before this process began
	counted    bool
}

func newConnections(o *objects) *connections {
	c := &connections{obj: o}
	c.half.name, c.half.most = "halfopen", uint64(o.Halfopen.MaxEntries())
	c.open.name, c.open.most = "conns", uint64(o.Conns.MaxEntries())
	return c
}

// owned is an open connection with what decides about its eviction.
type owned struct {
	key   connKey
	owner uint16
	seen  uint64
}

// openCount is how many connections are open, by what the programs and the last
// sweep say.
func (c *connections) openCount() (int64, error) {
	var spent, given ownerShare
	all := uint32(0)
	if err := errors.Join(c.obj.Spent.Lookup(all, &spent), c.obj.Given.Lookup(all, &given)); err != nil {
		return 0, fmt.Errorf("read maps spent and given: %w", err)
	}
	return int64(int32(spent.Open - given.Open)), nil
}

// isNearlyFull reports whether there is little room for open connections.
func (c *connections) isNearlyFull() bool {
	n, err := c.openCount()
	return err == nil && n >= int64(nearlyFullAt(uint32(c.open.most)))
}

// sweep deletes the connections that fn says and counts the others. When there
// is little room for open ones, those go that were idle longest, of the owners
// that have most.
func (c *connections) sweep(fn func(connKey, conn) bool) error {
	c.open.mu.Lock()
	defer c.open.mu.Unlock()
	c.half.mu.Lock()
	defer c.half.mu.Unlock()
	left := make([]ownerShare, ownerCount)
	held, err := c.openCount()
	if err != nil {
		return err
	}
	crowded := held >= int64(nearlyFullAt(uint32(c.open.most)))
	var open []owned
	dead := map[*ebpf.Map][]connKey{}
	places := map[connKey]uint32{}
	err = eachEntry("conns", c.obj.Conns, 1, func(k connKey, v conn) {
		switch {
		case fn(k, v):
			dead[c.obj.Conns] = append(dead[c.obj.Conns], k)
			return
		case crowded:
			open = append(open, owned{k, v.Owner, v.Seen})
		}
		left[0].Open++
		left[v.Owner%ownerCount].Open++
	})
	if err != nil {
		return err
	}
	// Open ones that the programs made, and that were not removed here.
	if there := int64(left[0].Open) + int64(len(dead[c.obj.Conns])); c.given != nil && held > there {
		c.open.evicted += uint64(held - there)
	}
	if out := connectionsToEvict(open, int(c.open.most)*3/4); len(out) > 0 {
		for _, o := range out {
			dead[c.obj.Conns] = append(dead[c.obj.Conns], o.key)
			left[0].Open--
			left[o.owner%ownerCount].Open--
		}
		c.open.evicted += uint64(len(out))
	}
	err = eachEntry("halfopen", c.obj.Halfopen, 1, func(k connKey, v conn) {
		if fn(k, v) {
			dead[c.obj.Halfopen] = append(dead[c.obj.Halfopen], k)
			places[k] = v.Slot
			return
		}
		left[0].Half++
		left[v.Owner%ownerCount].Half++
	})
	if err != nil {
		return err
	}
	for m, keys := range dead {
		if err := deleteAll("of connections", m, keys); err != nil {
			return err
		}
	}
	if err := c.free(places); err != nil {
		return err
	}
	c.open.entries, c.half.entries = uint64(left[0].Open), uint64(left[0].Half)
	return c.publishBudgets(left)
}

// free gives back the places of half-open connections that were deleted.
func (c *connections) free(places map[connKey]uint32) error {
	for k, at := range places {
		var s slot
		if err := c.obj.Slots.Lookup(at, &s); err != nil || s.Key != k {
			continue // it has gone to somebody else
		}
		if err := c.obj.Slots.Put(at, slot{}); err != nil {
			return fmt.Errorf("write map slots: %w", err)
		}
	}
	return nil
}

// publishBudgets tells the programs what each owner has left. What they make and take
// away meanwhile makes it inexact until the next time.
func (c *connections) publishBudgets(left []ownerShare) error {
	if c.given == nil {
		c.given = make([]ownerShare, 0, ownerCount)
		if err := eachEntry("given", c.obj.Given, 1, func(_ uint32, s ownerShare) { c.given = append(c.given, s) }); err != nil {
			return err
		}
	}
	at := 0
	var changed []uint32
	var now []ownerShare
	err := eachEntry("spent", c.obj.Spent, 1, func(_ uint32, s ownerShare) {
		g := ownerShare{s.Half - left[at].Half, s.Open - left[at].Open}
		if g != c.given[at] {
			c.given[at] = g
			changed, now = append(changed, uint32(at)), append(now, g)
		}
		at++
	})
	for i, k := range changed {
		if err != nil {
			break
		}
		err = c.obj.Given.Put(k, now[i])
	}
	if err != nil {
		c.given = nil // it is not known any more what is there
		return fmt.Errorf("write map given: %w", err)
	}
	evicted, err := readCreated(c.obj.Created, evictedHalf)
	if err != nil {
		return err
	}
	if !c.counted {
		c.counted, c.before = true, evicted
	}
	c.half.evicted = evicted - c.before
	clock, err := monotonic()
	if err != nil {
		return err
	}
	return c.obj.Swept.Put(uint32(0), clock)
}

// connectionsToEvict picks the ones to evict so that room remain: the longest idle of
// owners that have more than a level that all keep.
func connectionsToEvict(open []owned, room int) (out []owned) {
	if len(open) <= room {
		return nil
	}
	has := map[uint16]int{}
	for _, o := range open {
		has[o.owner]++
	}
	sizes := make([]int, 0, len(has))
	for _, n := range has {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	level := 0
	for i, n := range sizes { // the most that fits when no owner has more
		level = room / (len(sizes) - i)
		if n > level {
			break
		}
		room -= n
	}
	slices.SortFunc(open, func(a, b owned) int { return cmp.Compare(a.seen, b.seen) })
	for _, o := range open {
		if has[o.owner] > level {
			has[o.owner]--
			out = append(out, o)
		}
	}
	return out
}
