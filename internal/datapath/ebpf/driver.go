package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Config says where and how the driver works. Log is required. The driver
// works in the network namespace of the thread that calls it.
type Config struct {
	PinDir    string            // on a BPF file system, this driver's own; empty = /sys/fs/bpf/contiv/default
	Device    string            // name of the VXLAN device; empty = contivVxlan0
	VXLANPort uint16            // UDP port; 0 = 4789
	Uplinks   []string          // interfaces that carry VLAN networks; the first that exists is used
	Attach    string            // tcx, clsact, or empty: tcx where the kernel has it; ports have clsact until they last
	Sizes     map[string]uint32 // of maps, by name, where they are not those of bpf/maps.h; see CheckSizes
	Log       *slog.Logger

	load func(dir string, sizes map[string]uint32) (*objects, error) // nil = loadObjects
}

const (
	// DefaultPinDir holds the pinned objects of a machine's only agent.
	DefaultPinDir = bpfattach.StandardMount + "/contiv/default"
	// DefaultDevice is the VXLAN device's name.
	DefaultDevice = "contivVxlan0"
	// DefaultVXLANPort is IANA's (RFC 7348 section 5).
	DefaultVXLANPort = 4789
)

// Driver implements driver.Driver with eBPF programs. Its methods may be called from
// several goroutines. It owns the lock, the goroutines and the events; the parts of
// datapath own the tables and the state.
type Driver struct {
	cfg    Config
	run    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	events chan driver.Event
	drift  driver.Drift

	reading sync.RWMutex // held by who reads maps without mu; taken before mu is let go

	linkChanges *linkChanges
	reports     chan driver.MembershipReport
	probed      chan uint64

	mu            sync.Mutex // all below
	closed        bool
	dp            *datapath
	monitoring    chan struct{}        // closed when the monitor has ended; nil = none was begun
	monitor       *monitor             // that is under way and does not end yet; nil = none
	pendingAudits driver.PendingAudits // that came or changed without a monitor
}

var _ driver.Driver = (*Driver)(nil)

// New loads the programs and takes over what an earlier process left in the pin
// directory; packets keep flowing. The error wraps ebpf.ErrNotSupported when
// the kernel lacks a feature, which it names.
func New(ctx context.Context, cfg Config) (driver.Driver, error) { return open(ctx, cfg) }

func open(ctx context.Context, cfg Config) (*Driver, error) {
	if cfg.Log == nil {
		return nil, model.Errorf(model.ErrInvalid, "ebpf driver needs a logger")
	}
	if cfg.PinDir == "" {
		cfg.PinDir = DefaultPinDir
	}
	if cfg.Device == "" {
		cfg.Device = DefaultDevice
	}
	if cfg.VXLANPort == 0 {
		cfg.VXLANPort = DefaultVXLANPort
	}
	switch cfg.Attach {
	case "", attachTCX, attachClsact:
	default:
		return nil, model.InvalidField("attach", cfg.Attach, "must be tcx or clsact")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ebpf driver: %w", err)
	}
	if !hasPrograms(cfg.PinDir) { // which this kernel runs: pins do not outlive it
		if err := Probe(); err != nil {
			return nil, err
		}
	}
	if err := pinDirectory(cfg.PinDir); err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, events: make(chan driver.Event, 16), reports: make(chan driver.MembershipReport, 256), probed: make(chan uint64, 256), linkChanges: newHeard(cfg.Log), pendingAudits: driver.PendingAudits{}}
	d.run, d.cancel = context.WithCancel(context.Background())
	if err := d.takeOver(); err != nil {
		d.cancel()
		return nil, err
	}
	if err := d.begin(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// takeOver locks the pin directory and opens the programs and maps.
func (d *Driver) takeOver() error {
	var mine pinLock
	if err := mine.lock(d.cfg.PinDir); err != nil {
		return err
	}
	load := d.cfg.load
	if load == nil {
		load = loadObjects
	}
	obj, err := load(d.cfg.PinDir, d.cfg.Sizes)
	if err != nil {
		mine.unlock()
		return err
	}
	if d.dp, err = newDatapath(d.cfg, obj, &d.drift); err == nil {
		d.dp.pins.lock = mine
		if err = d.countTables(0); err != nil {
			err = fmt.Errorf("ebpf driver: %w", err)
		}
	}
	if err != nil {
		mine.unlock()
		return errors.Join(err, obj.Close())
	}
	return nil
}

// begin starts the goroutines.
func (d *Driver) begin() error {
	if err := d.startWatching(); err != nil {
		return err
	}
	if err := d.hearMemberships(); err != nil {
		return err
	}
	d.wg.Add(1)
	go d.maintain(d.run)
	if d.dp.att.way == attachTCX {
		home, err := netns.Get()
		if err != nil {
			return fmt.Errorf("ebpf driver: open this network namespace: %w", err)
		}
		d.wg.Add(1)
		go d.linkDuePorts(d.run, home)
	}
	return nil
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Egress: true, Egress6: true, Services: true, ExternalServices: true, ClientsByTunnel: true, RoutedNetworks: true, Frontends: true, ExternalBackends: true, ServiceStats: true, Routes: true, Bandwidth: true, Multicast: true, Log: true, Audit: true, AuditEstablished: true, Tabled: d, Drifting: d, Verifier: d, Forgetter: forgetter{d}, Connections: d, Memberships: d, TunnelProber: d}
}

// DriftRepairs implements driver.DriftReporter.
func (d *Driver) DriftRepairs() map[string]uint64 { return d.drift.DriftRepairs() }

// RecentDrift implements driver.DriftReporter.
func (d *Driver) RecentDrift(since time.Time) []string { return d.drift.RecentDrift(since) }

// Events implements driver.Driver.
func (d *Driver) Events() <-chan driver.Event { return d.events }

// Close implements driver.Driver; programs and maps stay and go on working.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.cancel()
	d.mu.Unlock()
	d.wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.events)
	close(d.reports)
	close(d.probed)
	d.dp.pins.lock.unlock()
	d.reading.Lock() // no goroutine reads maps any more
	defer d.reading.Unlock()
	return errors.Join(d.dp.att.close(), d.dp.obj.Close())
}

func (d *Driver) notify(reason string) {
	select {
	case d.events <- driver.Event{Reason: reason}:
	default:
	}
}
