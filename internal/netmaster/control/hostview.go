package control

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// HostView is the View's part with hosts, and with what they answer for.
type HostView struct {
	endpoints *EndpointView

	mu              *sync.RWMutex // the View's
	hostRows        *rows[model.HostName, model.Host]
	hostAddressRows *rows[tables.HostAddressesKey, tables.HostAddresses]
	drainRows       *rows[tables.HostDrainKey, tables.HostDrain]
	awayRows        *rows[tables.AwayTimeKey, tables.AwayTime]
	l2Announcers    *l2Announcers
}

func newHostView(mu *sync.RWMutex, endpoints *EndpointView) *HostView {
	hv := &HostView{mu: mu, endpoints: endpoints}
	hv.hostRows = newRows[model.HostName, model.Host](mu, nil, cmp.Compare[model.HostName])
	hv.hostAddressRows = newRows[tables.HostAddressesKey, tables.HostAddresses](mu, nil, func(a, b tables.HostAddressesKey) int { return cmp.Compare(a.Host, b.Host) })
	hv.drainRows = newRows[tables.HostDrainKey, tables.HostDrain](mu, nil, func(a, b tables.HostDrainKey) int { return cmp.Compare(a.Host, b.Host) })
	hv.awayRows = newRows[tables.AwayTimeKey, tables.AwayTime](mu, nil, func(a, b tables.AwayTimeKey) int { return cmp.Compare(a.Host, b.Host) })
	hv.reset()
	return hv
}

func (hv *HostView) reset() {
	hv.l2Announcers = &l2Announcers{hosts: map[model.HostName]seenAnnouncer{}, of: map[netip.Addr]model.HostName{}}
	hv.hostAddressRows.reset()
	hv.drainRows.reset()
	hv.awayRows.reset()
	hv.hostRows.reset()
}

// AnnouncerOf is the host that answers its neighbours for an address; empty = none.
func (hv *HostView) AnnouncerOf(a netip.Addr) model.HostName {
	return read(hv.mu, func() model.HostName {
		x := hv.l2Announcers
		h := x.of[a]
		if row, ok := x.hosts[h]; !ok || !slices.Contains(row.addrs, a) || x.isExpired(h, row.last) {
			return ""
		}
		return h
	})
}

func (hv *HostView) enterAnnouncer(k tables.L2AnnouncerKey, row *tables.L2Announcer) {
	x := hv.l2Announcers
	if row == nil {
		delete(x.hosts, k.Host)
		return
	}
	seen := seenAnnouncer{row.Addrs, announcerHeartbeatOf(*row), time.Now()}
	if old, had := x.hosts[k.Host]; had && old.last == seen.last {
		seen.at = old.at
	}
	x.hosts[k.Host] = seen
}

func (hv *HostView) enterAnnouncedAddr(k tables.AnnouncedAddrKey, row *tables.AnnouncedAddr) {
	if row != nil {
		hv.l2Announcers.of[k.Addr] = row.Host
	} else {
		delete(hv.l2Announcers.of, k.Addr)
	}
}

// HostAddresses returns the addresses that count as a host's.
func (hv *HostView) HostAddresses(k model.HostName) tables.HostAddresses {
	h, _ := hv.hostAddressRows.find(tables.HostAddressesKey{Host: k})
	return h
}

// TooManyAway reports whether, by who is alive, more than half of the hosts are away, of
// which nothing is concluded.
func (hv *HostView) TooManyAway(alive map[model.HostName]bool) bool {
	return tables.TooManyAway(hv.CountAway(alive))
}

// CountAway counts the hosts that are away, and all hosts, by which are alive. Hosts that
// were given up count for neither.
func (hv *HostView) CountAway(alive map[model.HostName]bool) (away, known int) {
	for _, h := range hv.List() {
		switch row, _ := hv.AwayTime(h.Name); {
		case alive[h.Name]:
			known++
		case !row.Evicted:
			known++
			away++
		}
	}
	return away, known
}

// HostDrains reports whether services send a host's providers no new connections, as
// an operator said.
func (hv *HostView) HostDrains(k model.HostName) bool {
	_, yes := hv.drainRows.find(tables.HostDrainKey{Host: k})
	return yes
}

// AwayTime returns for how long a host is away, if netmasters count.
func (hv *HostView) AwayTime(k model.HostName) (tables.AwayTime, bool) {
	return hv.awayRows.find(tables.AwayTimeKey{Host: k})
}

// Drains reports whether services send an endpoint no new connections, by a word about
// it or about its host.
func (hv *HostView) Drains(e model.Endpoint) bool { return e.Draining || hv.HostDrains(e.Host) }

// List returns all hosts that agents have told of.
func (hv *HostView) List() []model.Host { return hv.hostRows.list("") }

// Get finds a host.
func (hv *HostView) Get(k model.HostName) (model.Host, bool) { return hv.hostRows.find(k) }

// HostNames returns the hosts that agents have told of or that endpoints live
// on, in no particular order; a name may be there twice.
func (hv *HostView) HostNames() []model.HostName {
	hv.mu.RLock()
	defer hv.mu.RUnlock()
	var out []model.HostName
	for h := range hv.hostRows.all {
		out = append(out, h)
	}
	for h := range hv.endpoints.endpointsOfHost {
		if h != "" {
			out = append(out, h)
		}
	}
	return out
}

// enterHosts enters a change of what is known of a host.
func (hv *HostView) enterHosts(ch tables.Change) {
	switch k := ch.Key.(type) {
	case model.HostName:
		hv.hostRows.enter(ch)
	case tables.HostAddressesKey:
		hv.hostAddressRows.enter(ch)
	case tables.HostDrainKey:
		hv.drainRows.enter(ch)
	case tables.AwayTimeKey:
		hv.awayRows.enter(ch)
	case tables.L2AnnouncerKey:
		hv.enterAnnouncer(k, value[tables.L2Announcer](ch))
	case tables.AnnouncedAddrKey:
		hv.enterAnnouncedAddr(k, value[tables.AnnouncedAddr](ch))
	}
}

// hostsWithoutConfirm returns the hosts whose agents do not know of changes that wait.
func (hv *HostView) hostsWithoutConfirm() (out []string) {
	for _, h := range hv.List() {
		if !h.Confirms {
			out = append(out, string(h.Name))
		}
	}
	return out
}

// l2Announcers is what the mirror tells of answering hosts.
type l2Announcers struct {
	hosts map[model.HostName]seenAnnouncer
	of    map[netip.Addr]model.HostName
}

type seenAnnouncer struct {
	addrs []netip.Addr
	last  announcerHeartbeat
	at    time.Time // since when it is seen
}

func (a *l2Announcers) contents() any { // when something was seen is only remembered
	hosts := map[model.HostName][]netip.Addr{}
	for h, x := range a.hosts {
		hosts[h] = x.addrs
	}
	return []any{hosts, a.of}
}

// isExpired reports whether a host's sign of life has been the last one for so long that what it
// has may be given to another one.
func (a *l2Announcers) isExpired(h model.HostName, last announcerHeartbeat) bool {
	x, ok := a.hosts[h]
	return ok && x.last == last && time.Since(x.at) >= model.L2SilenceTime
}
