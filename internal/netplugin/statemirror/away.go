package statemirror

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Peer is another host that can be asked whether it is there.
type Peer struct {
	Name model.HostName
	Addr netip.Addr // where it is asked
	Away bool       // no netmaster hears of it
	// AnswersProbes: its data plane answers tunnel probes.
	AnswersProbes bool
}

// Peers returns the other hosts that can be asked whether they are there, and whether
// so many hosts are away that nothing may be concluded; changed is closed when that
// is another answer. A host whose endpoints are given up is none of them while it is
// away: nothing leads there any more.
func (c *State) Peers() (peers []Peer, many bool, changed <-chan struct{}) {
	changed = c.hostsChanged.Next()
	c.mu.Lock()
	defer c.mu.Unlock()
	away, known := 0, 0
	for name, h := range c.hosts {
		row, absent := c.absences[tables.HostAbsenceKey{Host: name}]
		if row.Evicted {
			continue
		}
		known++
		if absent {
			away++
		}
		if at := askedAt(h); at.IsValid() && name != c.Host {
			peers = append(peers, Peer{Name: name, Addr: at, Away: absent, AnswersProbes: h.AnswersProbes})
		}
	}
	return peers, tables.TooManyAway(away, known), changed
}

// askedAt is where a host is asked whether it is there: where its tunnels end, which is
// its address to others in any forwarding mode.
func askedAt(h model.Host) netip.Addr {
	if h.VTEP.IsValid() {
		return h.VTEP
	}
	return h.Control
}

// SetUnreachable has services send the providers on a host no new connections, since
// nothing is heard of it, or (not yes) do so again. It has a pass made.
func (c *State) SetUnreachable(name model.HostName, yes bool) {
	c.mu.Lock()
	c.comp.Hosts.Silent(name, yes)
	c.mu.Unlock()
	c.Kick("a host's silence")
}
