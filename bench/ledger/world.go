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
	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// world is a lab with what stays while components are killed.
type world struct {
	lab   *testcluster.Lab
	runs  runner
	nodes *cluster.Nodes // nil = there is no Kubernetes
	// The tenant and network of containers and objects, and netctl's commands that create
	// what they need. All are empty for a peer, which has no netmaster.
	tenant, network string
	make            []string
	down            func() error

	flows  *flows
	before map[string]int // what there was before the churn
	next   int            // which host's component is killed next
}

// rulesOf are databases that answer web servers only, so that every packet of a flow is
// judged.
func rulesOf(tenant, network string) []string {
	of := " -t " + tenant + " "
	return []string{
		"group create" + of + network + " web", "policy create" + of + "p",
		"policy rule-add" + of + "-d in -p 1 -j deny p nobody", "policy rule-add" + of + "-d in -p 10 -g web -j allow p web",
		"group create" + of + "-p p " + network + " db",
	}
}

// The commands that set up a cluster: in full, and on a Kubernetes cluster.
var (
	makeBlue    = append([]string{"tenant create blue", "network create -t blue -e vxlan -s 10.1.0.0/22 net"}, rulesOf("blue", "net")...)
	makeDefault = rulesOf("default", "default-net")
)

// peer reports whether there is no netmaster.
func (w *world) peer() bool { return w.network == "" }

// container is one of a host, of a group where there are groups.
func (w *world) container(name, host, group string) testcluster.ContainerSpec {
	if w.peer() {
		group = ""
	}
	return testcluster.ContainerSpec{Name: name, Host: host, Tenant: w.tenant, Network: w.network, Group: group}
}

// staying are the containers that stay for the whole run, and have the flows: from the
// first one to a database on the same host, and to one on each other host.
func (w *world) staying() (from testcluster.ContainerSpec, to []testcluster.ContainerSpec) {
	for i, h := range w.lab.Hosts() {
		to = append(to, w.container(fmt.Sprint("db", i+1), h.Name, "db"))
	}
	return w.container("web1", w.lab.Hosts()[0].Name, "web"), to
}

// build makes a row's lab, and starts what stays.
func build(ctx context.Context, bin string, r row) (_ *world, err error) {
	w, err := r.on.start(ctx, bin, r.driver)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := rig.Netctl(ctx, w.lab, w.make...); err != nil {
		return nil, err
	}
	web, dbs := w.staying()
	_, from, err := w.begin(ctx, web)
	if err != nil {
		return nil, err
	}
	to := map[netip.Addr]*testcluster.Namespace{}
	for _, s := range dbs {
		addr, ns, err := w.begin(ctx, s)
		if err != nil {
			return nil, err
		}
		to[addr] = ns
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

// begin adds a container that stays, as soon as its network is there.
func (w *world) begin(ctx context.Context, s testcluster.ContainerSpec) (a netip.Addr, ns *testcluster.Namespace, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := testcluster.Until(ctx, s.Name+" to begin", func(ctx context.Context) error { return w.runs.add(ctx, s) }); err != nil {
		return a, nil, err
	}
	return w.runs.at(ctx, s)
}

func (w *world) close() (err error) {
	if w.flows != nil {
		err = w.flows.stop()
		w.flows = nil
	}
	if w.runs != nil {
		err = errors.Join(err, w.runs.close())
	}
	return errors.Join(err, w.down())
}

// settled waits until the cluster is well and holds the same for two seconds.
func (w *world) settled(ctx context.Context) (out map[string]int, err error) {
	since := time.Now()
	return out, testcluster.Until(ctx, "the cluster to settle", func(ctx context.Context) error {
		now, err := w.inventory(ctx)
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
	c, err := w.lab.Masters.API()
	if err != nil {
		return s, err
	}
	defer c.Close()
	return c.Status(ctx)
}

// well returns an error if netmaster reports a problem; a peer has no netmaster to ask.
func (w *world) well(ctx context.Context) error {
	if w.peer() {
		return nil
	}
	s, err := w.status(ctx)
	if err == nil && !s.Well {
		err = errors.New(strings.Join(s.Wrong, "; "))
	}
	return err
}

// inventory counts all that containers and objects are made of: keys of the store (objects,
// endpoints, addresses, tags, identities), and on each host links, ports, journal
// entries, what the data plane holds, and what the runtime does.
func (w *world) inventory(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	if !w.peer() {
		if err := w.ours(ctx, out); err != nil {
			return nil, err
		}
	}
	for _, h := range w.lab.Hosts() {
		links, err := h.NS.Links()
		if err != nil {
			return nil, err
		}
		out[h.Name+": links"] = len(links)
		of, err := w.runs.holds(ctx, h)
		if err != nil {
			return nil, err
		}
		for what, n := range of {
			out[h.Name+": "+what] = n
		}
	}
	return out, nil
}

// ours counts what netmaster and netplugins hold.
func (w *world) ours(ctx context.Context, out map[string]int) error {
	etcd, err := w.lab.Store.Etcd(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }() // nothing was written
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	keys, err := etcd.Get(asking, tables.StatePrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	for _, kv := range keys.Kvs {
		out["store: "+strings.TrimPrefix(string(kv.Key), tables.StatePrefix)]++
	}
	status, err := w.status(ctx)
	if err != nil {
		return err
	}
	for _, h := range status.Hosts {
		out[h.Name+": endpoints"], out[h.Name+": attachments"] = h.Endpoints, h.Attachments
		out[h.Name+": ports"], out[h.Name+": ports pending"] = h.Ports, h.Pending
	}
	for _, h := range w.lab.Hosts() {
		files, err := filepath.Glob(filepath.Join(h.StateDir(), "attach", "*.json"))
		if err != nil {
			return err
		}
		plane, err := h.ObjectCounts(ctx, false)
		if err != nil {
			return err
		}
		out[h.Name+": journal entries"] = len(files)
		for what, n := range plane {
			if h.Driver() == testcluster.DriverOVS { // a line names ports by numbers, which change when they are made again
				what = "flows and groups"
			}
			out[h.Name+": data plane: "+what] += n
		}
	}
	return nil
}

// leaks waits until the hosts hold what they held, at most a time, and lists what there
// is besides.
func (w *world) leaks(ctx context.Context, wait time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	found := []string{}
	var asked error
	_ = testcluster.Until(ctx, "nothing to be left", func(ctx context.Context) error { // the caller reports what is left
		now, err := w.inventory(ctx)
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
