package statemirror

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// HostTable owns the cluster's hosts as the store has them, and their absences and BGP
// settings. The State enters them; the loop's parts ask. It has a lock of its own, which is
// taken last.
type HostTable struct {
	own      model.HostName
	previous []model.HostName // other hosts of the last desired state of a former run
	changes  waiting.Changes  // of hosts and absences

	mu       sync.Mutex
	hosts    map[model.HostName]model.Host
	absences map[tables.AwayTimeKey]tables.AwayTime
	bgps     map[tables.BgpKey]model.Bgp
	noRecord bool   // the store has no record of this host
	version  uint64 // counts changes of hosts' addresses
}

// newHostTable returns a HostTable that has the record of this host as Config says it, if it
// does, until the store has one: without an end of its own a data plane would take its
// tunnels away.
func newHostTable(cfg Config) *HostTable {
	t := &HostTable{
		own: cfg.Host, previous: readHosts(cfg.StateDir, cfg.Log),
		hosts: map[model.HostName]model.Host{}, absences: map[tables.AwayTimeKey]tables.AwayTime{}, bgps: map[tables.BgpKey]model.Bgp{},
	}
	if cfg.VTEP.IsValid() {
		t.hosts[cfg.Host], t.noRecord = model.Host{Name: cfg.Host, Control: cfg.Control, VTEP: cfg.VTEP}, true
	}
	return t
}

// setHost enters a host's record, or that there is none. It reports whether the table has
// changed: this host's last record stays.
func (t *HostTable) setHost(k model.HostName, now model.Host, is bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k == t.own {
		if t.noRecord = !is; t.noRecord {
			return false
		}
	}
	if was := t.hosts[k]; now.Control != was.Control || now.VTEP != was.VTEP {
		t.version++
	}
	if is {
		t.hosts[k] = now
	} else {
		delete(t.hosts, k)
	}
	t.changes.Notify()
	return true
}

func (t *HostTable) setAway(ch tables.Change, k tables.AwayTimeKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	enter(ch, t.absences, k, func(tables.AwayTime) {}, func(tables.AwayTimeKey) {})
	t.changes.Notify()
}

func (t *HostTable) setBgp(ch tables.Change, k tables.BgpKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	enter(ch, t.bgps, k, func(model.Bgp) {}, func(tables.BgpKey) {})
}

// OwnRecord returns this host's record as it was last; before the first it has nothing but
// what is known without.
func (t *HostTable) OwnRecord() model.Host {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hosts[t.own]
}

// problems says whether the store has no record of this host: it is written, and until then
// the desired state has the last record, or the one in Config.
func (t *HostTable) problems() []compile.Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.noRecord {
		return nil
	}
	return []compile.Problem{{Object: "host " + string(t.own), Text: "its record is not in the store, and is still to be written: hosts that have not seen one have no tunnel to it"}}
}

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
func (t *HostTable) Peers() (peers []Peer, many bool, changed <-chan struct{}) {
	changed = t.changes.Next()
	t.mu.Lock()
	defer t.mu.Unlock()
	away, known := 0, 0
	for name, h := range t.hosts {
		row, absent := t.absences[tables.AwayTimeKey{Host: name}]
		if row.Evicted {
			continue
		}
		known++
		if absent {
			away++
		}
		if at := probeAddress(h); at.IsValid() && name != t.own {
			peers = append(peers, Peer{Name: name, Addr: at, Away: absent, AnswersProbes: h.AnswersProbes})
		}
	}
	return peers, tables.TooManyAway(away, known), changed
}

// probeAddress is where a host is asked whether it is there: where its tunnels end, which is
// its address to others in any forwarding mode.
func probeAddress(h model.Host) netip.Addr {
	if h.VTEP.IsValid() {
		return h.VTEP
	}
	return h.Control
}

// Bgp returns this host's BGP settings, nil = none, and the hosts before it by name whose
// settings have the same router address.
func (t *HostTable) Bgp() (own *model.Bgp, rivals []model.HostName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.bgps {
		if b.Host == t.own {
			own = &b
		}
	}
	if own == nil {
		return nil, nil
	}
	for _, b := range t.bgps {
		if b.Host < t.own && b.RouterIP.Addr() == own.RouterIP.Addr() {
			rivals = append(rivals, b.Host)
		}
	}
	slices.Sort(rivals)
	return own, rivals
}

// Routers returns the networks in which hosts speak BGP, and their routers' addresses; each
// once.
func (t *HostTable) Routers() (out []netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.bgps {
		out = append(out, b.Networks()...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// Addresses are those of the cluster's hosts.
func (t *HostTable) Addresses() (out []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		for _, a := range []netip.Addr{h.VTEP, h.Control, h.IPv6} {
			if a.IsValid() {
				out = append(out, a)
			}
		}
	}
	return out
}

// known returns the hosts' addresses, for control and for tunnels, and their version, which
// is never 0; no addresses if that is the version that the caller has.
func (t *HostTable) known(version uint64) ([][2]netip.Addr, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version+1 == version {
		return nil, version
	}
	out := make([][2]netip.Addr, 0, len(t.hosts))
	for _, h := range t.hosts {
		out = append(out, [2]netip.Addr{h.Control, h.VTEP})
	}
	return out, t.version + 1
}

// others are the other hosts, sorted.
func (t *HostTable) others() (names []model.HostName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.hosts {
		if h != t.own {
			names = append(names, h)
		}
	}
	slices.Sort(names)
	return names
}

// HostsFile, in the state directory, names the other hosts of the last desired state. The
// data plane has tunnels to them. An agent that begins would take these away if it followed
// a store that has no record of the hosts yet.
const HostsFile = "hosts.json"

type hostsRecord struct {
	Version int              `json:"version"` // 1
	Hosts   []model.HostName `json:"hosts"`
}

// readHosts reads HostsFile. One that cannot be read counts as none: then only hosts that
// a store has a record of are waited for.
func readHosts(dir string, log *slog.Logger) []model.HostName {
	var k hostsRecord
	data, err := os.ReadFile(filepath.Join(dir, HostsFile))
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the list of hosts in the last desired state cannot be read: missing hosts are not looked for in another store", "file", HostsFile, "error", err)
		return nil
	}
	if k.Version != 1 {
		return nil
	}
	return k.Hosts
}

// RememberHosts keeps HostsFile until ctx ends. It changes while the store is followed only.
func (g *StoreGuard) RememberHosts(ctx context.Context, t *HostTable) {
	last := t.previous
	for {
		changed := t.changes.Next()
		now, ok := t.others(), g.Current()
		if ok && !slices.Equal(now, last) {
			err := durable.WriteJSON(filepath.Join(g.StateDir, HostsFile), hostsRecord{1, now})
			if waiting.Pause(ctx, positionInterval) != nil {
				return
			}
			if err != nil {
				g.Log.Debug("the list of hosts in the desired state cannot be written yet", "error", err)
				continue
			}
			last = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
