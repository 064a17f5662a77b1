package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// counts are of all simulated agents together, since they began.
type counts struct {
	Batches int64 `json:"batches"` // transactions that mirrors were told of: each wakes an agent
	Events  int64 `json:"events"`  // keys in these
	Payload int64 `json:"payload"` // bytes of these keys and their values
	Passes  int64 `json:"passes"`  // of drivers
	Wire    int64 `json:"wire"`    // bytes that came over the connections to the store and, with -relay, to netmaster
	Conns   int   `json:"conns"`   // how many those are
}

// shared is what all simulated agents of the process write to.
type shared struct {
	news                             *news
	relay                            string // URL of the netmaster that agents mirror from; empty = from the store
	batches, events, payload, passes atomic.Int64
	said                             said
}

// timed is the reference driver, which tells when it has what.
type timed struct {
	*reference.Driver
	shared *shared

	mu      sync.Mutex
	remotes desired.Map[desired.RemoteKey, *desired.Remote] // that it has
	ports   desired.Map[string, *desired.Port]
}

// Apply implements driver.Driver.
func (d *timed) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	r, err := d.Driver.Apply(ctx, want)
	at := now()
	d.shared.passes.Add(1)
	if err != nil {
		return r, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var events []event
	for c := range want.Remotes.Diff(d.remotes) {
		switch {
		case !c.Had:
			events = append(events, event{addr: c.New.IPv4})
		case !c.Has:
			events = append(events, event{addr: c.Old.IPv4, gone: true})
		}
	}
	for c := range want.Ports.Diff(d.ports) {
		switch {
		case !c.Had:
			events = append(events, event{addr: c.New.IPv4})
		case !c.Has:
			events = append(events, event{addr: c.Old.IPv4, gone: true})
		}
	}
	d.remotes, d.ports = want.Remotes, want.Ports
	d.shared.news.arrived(events, at)
	return r, nil
}

// has is how many endpoints the driver has.
func (d *timed) has() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.remotes.Len() + d.ports.Len()
}

// counted counts the events that mirrors receive.
type counted struct {
	store.Mirrorer
	shared *shared
}

// Mirror implements store.Mirrorer.
func (c counted) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	return c.Mirrorer.Mirror(ctx, prefixes, func(b store.Batch) error {
		c.shared.batches.Add(1)
		c.shared.events.Add(int64(len(b.Events)))
		bytes := 0
		for _, e := range b.Events {
			bytes += len(e.KV.Key) + len(e.KV.Value)
		}
		c.shared.payload.Add(int64(bytes))
		return fn(b)
	}, opts...)
}

// simulated is one agent.
type simulated struct {
	drv *timed
	end func() error
}

// begin starts an agent as after a restart: it has had its host's name, and finds one
// container of each of its host's networks running, so that they concern it. No
// interface is made.
func (s *shared) begin(n int, z sizes, storeURL, dir string) (*simulated, error) {
	host := model.HostName(hostName(n))
	dir = filepath.Join(dir, hostName(n))
	if err := errors.Join(writeJournal(n, z, dir), writeInstallation(n, dir)); err != nil {
		return nil, err
	}
	log := slog.New(&s.said)
	cfg, closeStore := agent.Config{}, func() error { return nil }
	if s.relay != "" {
		cfg.FromNetmasters, cfg.Seeds = true, []string{s.relay}
	} else {
		client, err := etcd.New(etcd.Config{Endpoints: []string{storeURL}, Logger: log})
		if err != nil {
			return nil, err
		}
		cfg.Store, closeStore = client, client.Close
	}
	drv := &timed{Driver: reference.New(), shared: s}
	at := z.vtep(n)
	cfg.Host, cfg.Control, cfg.VTEP, cfg.DriverName, cfg.Driver, cfg.Log = host, at, at, "fake", drv, log
	cfg.Mirrored = func(st store.Mirrorer) store.Mirrorer { return counted{st, s} }
	cfg.StateDir, cfg.Socket, cfg.UnderlayMTU, cfg.NoDNS = dir, filepath.Join(dir, "s"), 1500, true
	a, err := agent.New(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", host, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return &simulated{drv: drv, end: func() error {
		cancel()
		err := <-done
		_ = closeStore() // it was read
		return err
	}}, nil
}

// writeJournal writes that the first endpoint of each of the host's networks is a
// container's.
func writeJournal(n int, z sizes, dir string) error {
	journal := attachment.JournalDir(dir)
	if err := os.MkdirAll(journal, 0o700); err != nil {
		return err
	}
	first := z.firstNetwork(n)
	for network := first; network < first+z.networksOfBlock(); network++ {
		key := model.EndpointKey{
			Network: model.NetworkKey{Tenant: model.TenantName(z.tenant(network)), Name: model.NetworkName(networkName(network))},
			ID:      model.EndpointID(endpointName(z.firstEndpoint(n, network))),
		}
		k := attach.Key{Container: string(key.ID), IfName: "eth0"}
		b, err := json.Marshal(attachment.Entry{
			Version: 1, State: attachment.StateDone, Endpoint: key, HostIf: compile.IfName(key), BootID: attachment.BootID(),
			Group:   model.GroupName(groupName(network)),
			Request: attach.Request{Key: k, Tenant: string(key.Network.Tenant), Network: string(key.Network.Name), Group: groupName(network)},
		})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(journal, journalFile(k)), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// journalFile is what the journal calls an attachment's file.
func journalFile(k attach.Key) string {
	sum := sha256.Sum256([]byte(k.Container + "\x00" + k.IfName))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// said counts what agents log as a warning or worse, by its text.
type said struct {
	mu    sync.Mutex
	texts map[string]int
}

// Enabled implements slog.Handler.
func (s *said) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (s *said) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]int{}
	}
	text := r.Message
	if s.texts[text] == 0 { // the first one in full
		r.Attrs(func(a slog.Attr) bool {
			fmt.Fprintf(os.Stderr, "  an agent: %s: %s\n", r.Message, a)
			return true
		})
	}
	s.texts[text]++
	return nil
}

// WithAttrs implements slog.Handler.
func (s *said) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s *said) WithGroup(string) slog.Handler { return s }

func (s *said) all() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.texts)
}
