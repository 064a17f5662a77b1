package multicast

import (
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// Bounds and times.
const (
	// MaxGroups is how many groups an endpoint may hear, as many as a container's
	// kernel allows three times over (Linux: net.ipv4.igmp_max_memberships, 20).
	MaxGroups = 64
	// MaxMembers is how many memberships a host keeps, of all its endpoints.
	MaxMembers = 16384
	// Interval is how often an endpoint is asked (RFC 3376 section 8.2).
	Interval   = 125 * time.Second
	robustness = 2
	within     = 10 * time.Second // it answers
	// Lifetime is how long a membership lasts that nothing is heard of (RFC 3376
	// section 8.4).
	Lifetime = robustness*Interval + within
)

// table is who hears what.
type table struct {
	ports   map[string]map[netip.Addr]time.Time // by interface: until when each group
	n       int
	refused uint64 // that found no room
}

// handleReport takes a report of a port down; it tells whether who hears what has changed.
func (t *table) handleReport(port string, m message, now time.Time) (changed bool) {
	for _, c := range m.changes {
		if !desired.IsMulticastMember(c.group) {
			continue
		}
		of := t.ports[port]
		_, had := of[c.group]
		switch {
		case !c.join && had:
			t.leave(port, c.group)
			changed = true
		case !c.join:
		case !had && (len(of) >= MaxGroups || t.n >= MaxMembers):
			t.refused++
		default:
			if of == nil {
				of = map[netip.Addr]time.Time{}
				t.ports[port] = of
			}
			of[c.group] = now.Add(Lifetime)
			if !had {
				t.n++
				changed = true
			}
		}
	}
	return changed
}

func (t *table) leave(port string, group netip.Addr) {
	of := t.ports[port]
	delete(of, group)
	t.n--
	if len(of) == 0 {
		delete(t.ports, port)
	}
}

// forget takes a port out that is gone.
func (t *table) forget(port string) {
	t.n -= len(t.ports[port])
	delete(t.ports, port)
}

// expire takes out what is over.
func (t *table) expire(now time.Time) (changed bool) {
	for port, of := range t.ports {
		for group, until := range of {
			if !now.Before(until) {
				t.leave(port, group)
				changed = true
			}
		}
	}
	return changed
}

// groups returns the snapshot of the table, and keeps of the last one what is the same.
func (t *table) groups(ports desired.Map[string, *desired.Port], last desired.Map[desired.GroupKey, *desired.Group]) desired.Map[desired.GroupKey, *desired.Group] {
	members := map[desired.GroupKey][]string{}
	for name, of := range t.ports {
		p, ok := ports.Get(name)
		if !ok {
			continue
		}
		for group := range of {
			k := desired.GroupKey{Network: p.Network, Addr: group}
			members[k] = append(members[k], name)
		}
	}
	out := last
	for k := range last.All() {
		if members[k] == nil {
			out = out.Delete(k)
		}
	}
	for k, names := range members {
		slices.Sort(names)
		if g, ok := last.Get(k); !ok || !slices.Equal(g.Ports, names) {
			out = out.Set(k, &desired.Group{Ports: names})
		}
	}
	return out
}
