package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/lab"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// world is a lab with what stays while components are killed.
type world struct {
	*lab.Lab
	flows  *flows
	before map[string]int // what there was before the churn
	next   int            // which host's component is killed next
}

// intent is what netmaster is told: databases that answer web servers only, so that
// every packet of a flow is judged.
var intent = []string{
	"tenant create blue", "network create -t blue -e vxlan -s 10.1.0.0/22 net",
	"group create -t blue net web", "policy create -t blue p",
	"policy rule-add -t blue -d in -p 1 -j deny p nobody", "policy rule-add -t blue -d in -p 10 -g web -j allow p web",
	"group create -t blue -p p net db",
}

// containers stay for the whole run, and have the flows.
var containers = []lab.ContainerSpec{
	{Name: "web1", Host: "h1", Tenant: "blue", Network: "net", Group: "web"},
	{Name: "db1", Host: "h1", Tenant: "blue", Network: "net", Group: "db"},
	{Name: "db2", Host: "h2", Tenant: "blue", Network: "net", Group: "db"},
}

// build makes the lab: two hosts, three netmasters and an etcd of three members.
func build(ctx context.Context, bin, driver string) (_ *world, err error) {
	l, err := lab.Up(ctx, lab.Config{Name: "ledger" + driver, BinDir: bin, Hosts: 2, Driver: driver, Replicas: 3})
	if err != nil {
		return nil, err
	}
	w := &world{Lab: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for _, line := range intent {
		if out, err := l.Netctl(ctx, strings.Fields(line)...); err != nil {
			return nil, fmt.Errorf("netctl %s: %w: %s", line, err, out)
		}
	}
	to := map[netip.Addr]*lab.Namespace{}
	var from *lab.Namespace
	for _, s := range containers {
		a, err := l.AddContainer(ctx, s)
		if err != nil {
			return nil, err
		}
		ns, err := l.Space(s.Name)
		if err != nil {
			return nil, err
		}
		if s.Group == "web" {
			from = ns
		} else {
			to[a.IPv4] = ns
		}
	}
	if w.flows, err = startFlows(ctx, from, to); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := w.flows.established(within); err != nil {
		return nil, err
	}
	w.before, err = w.settled(within)
	return w, err
}

func (w *world) close() (err error) {
	if w.flows != nil {
		err = w.flows.stop()
		w.flows = nil
	}
	return errors.Join(err, w.Down())
}

// settled waits until the cluster is well and holds the same for two seconds.
func (w *world) settled(ctx context.Context) (out map[string]int, err error) {
	since := time.Now()
	return out, lab.Until(ctx, "the cluster to settle", func(ctx context.Context) error {
		now, err := w.held(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(out, now) {
			out, since = now, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return errors.New("what it holds changes")
		}
		return w.well(ctx)
	})
}

// status is what netmaster says of the cluster.
func (w *world) status(ctx context.Context) (s api.ClusterStatus, err error) {
	c, err := w.API()
	if err != nil {
		return s, err
	}
	defer c.Close()
	return c.Status(ctx)
}

// well asks whether netmaster says that all is well.
func (w *world) well(ctx context.Context) error {
	s, err := w.status(ctx)
	if err == nil && !s.Well {
		err = errors.New(strings.Join(s.Wrong, "; "))
	}
	return err
}

// held counts all that containers and objects are made of: keys of the store (objects,
// endpoints, addresses, tags, identities), and on each host links, ports, journal
// entries, and what the data plane holds.
func (w *world) held(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	etcd, err := w.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = etcd.Close() }() // nothing was written
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	keys, err := etcd.Get(asking, tables.StatePrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range keys.Kvs {
		out["store: "+strings.TrimPrefix(string(kv.Key), tables.StatePrefix)]++
	}
	status, err := w.status(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range status.Hosts {
		out[h.Name+": endpoints"], out[h.Name+": attachments"] = h.Endpoints, h.Attachments
		out[h.Name+": ports"], out[h.Name+": ports pending"] = h.Ports, h.Pending
	}
	for _, h := range w.Hosts() {
		links, err := h.NS.Links()
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob(filepath.Join(h.StateDir(), "attach", "*.json"))
		if err != nil {
			return nil, err
		}
		plane, err := h.Held(ctx, false)
		if err != nil {
			return nil, err
		}
		out[h.Name+": links"], out[h.Name+": journal entries"] = len(links), len(files)
		for what, n := range plane {
			if h.Driver() == lab.DriverOVS { // a line names ports by numbers, which change when they are made again
				what = "flows and groups"
			}
			out[h.Name+": data plane: "+what] += n
		}
	}
	return out, nil
}

// leaks waits until the hosts hold what they held, at most a time, and lists what there
// is besides.
func (w *world) leaks(ctx context.Context, wait time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	found := []string{}
	var asked error
	_ = lab.Until(ctx, "nothing to be left", func(ctx context.Context) error { // what is left is told
		now, err := w.held(ctx)
		if err != nil {
			if ctx.Err() == nil {
				asked = err
			}
			return err
		}
		asked, found = nil, differences(w.before, now)
		if len(found) > 0 {
			return errors.New(found[0])
		}
		return w.well(ctx)
	})
	return found, asked
}

// differences lists what there is more of, or less.
func differences(before, now map[string]int) []string {
	out := []string{}
	all := maps.Clone(before)
	maps.Copy(all, now)
	for what := range all {
		if before[what] != now[what] {
			out = append(out, fmt.Sprintf("%s: %d, before %d", what, now[what], before[what]))
		}
	}
	slices.Sort(out)
	return out
}
