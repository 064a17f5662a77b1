package membership

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// Endpoint returns the URL of this member for clients.
func (m *Member) Endpoint() string {
	if m.cfg.TLS != nil {
		return transport.HTTPS + "://" + m.cfg.Client
	}
	return transport.HTTP + "://" + m.cfg.Client
}

// Client returns a client inside this process. It has to be closed before the member.
func (m *Member) Client() *etcd.Client { return etcd.Inside(m.Etcd(), m.Endpoint(), m.cfg.Logger) }

// Dir is its data directory.
func (m *Member) Dir() string { return m.dir.path }

// Name is this member's, in its cluster.
func (m *Member) Name() string { return m.dir.Name }

// Broken reports whether a part of etcd has ended by itself: then neither clients nor
// the member end in order.
func (m *Member) Broken() bool { return m.server.broken() }

// Problem says what an operator should do about this member's space and directory now;
// "" = nothing.
func (m *Health) Problem() string {
	if m.lostLock() {
		return fmt.Sprintf("the data directory %s was removed while netmaster runs: all of this member's state is lost when netmaster ends; export it now ('netctl export --in-use') and do not stop netmaster before, or have two other members", m.dir.path)
	}
	return m.Status().SpaceProblem()
}

// lostLock reports whether the lock that this process holds is no longer the one in the
// directory, or the data have been taken from there.
func (m *Health) lostLock() bool {
	held, err := m.dir.lock.Stat()
	if err != nil {
		return false // closed
	}
	there, err := os.Stat(filepath.Join(m.dir.path, lockName))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	if m.cfg.Store != nil {
		return !os.SameFile(held, there)
	}
	_, err = os.Stat(filepath.Join(m.dir.path, dataName))
	return errors.Is(err, os.ErrNotExist) || !os.SameFile(held, there)
}

// Collectors are gauges of this member. They send no requests.
func (m *Member) Collectors() []prometheus.Collector {
	if m.cfg.Store != nil {
		return nil
	}
	gauge := func(name, help string, of func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, of)
	}
	one := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	var out []prometheus.Collector
	if s := m.cfg.Backup.filled(); s.Dir != "" {
		out = append(out,
			gauge("contiv_store_snapshot_failed", "1 while the last scheduled snapshot has failed, else 0; embedded store with snapshots.", func() float64 { return one(m.Health.unsaved.Load() != nil) }),
			gauge("contiv_store_snapshot_age_seconds", "Age of the newest snapshot, or, without one, uptime of this member; embedded store with snapshots.", func() float64 { return s.age(time.Now(), m.Health.began).Seconds() }),
			gauge("contiv_store_snapshot_every_seconds", "Time between two snapshots; embedded store with snapshots.", func() float64 { return s.Every.Seconds() }),
		)
	}
	return append(out,
		gauge("contiv_store_disk_free_bytes", "Free bytes in the file system of the embedded store.", func() float64 { return float64(m.Health.Status().Free) }),
		gauge("contiv_store_directory_lost", "1 after the embedded store's directory was removed, else 0.", func() float64 { return one(m.Health.lostLock()) }),
		gauge("contiv_store_member_in_use_bytes", "Bytes in use in the embedded store's database; 'netctl cluster relieve' gives the rest back.", func() float64 { return float64(m.Health.Status().InUse) }),
		gauge("contiv_store_member_leads", "1 while this member leads the embedded store, else 0.", func() float64 { return one(m.Health.Status().Leads) }),
		gauge("contiv_store_member_has_leader", "1 while this member of the embedded store knows a leader, else 0.", func() float64 { return one(m.Health.Status().Leader != 0) }),
		gauge("contiv_store_members", "Members of the embedded store, learners included.", func() float64 { return float64(len(m.Etcd().Cluster().Members())) }),
	)
}

var badInName = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// hostName is the default name of a member.
func hostName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this member: %w; give --member-name", err)
	}
	name = badInName.ReplaceAllString(name, "-")
	return name[:min(len(name), 64)], nil
}
