package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// bridged is the data plane of peers: the Linux bridge of Docker or of CNI's stock plugin,
// on one host, without policy.
const bridged = "bridge"

// starter starts the cluster of a row, without intent and containers.
type starter struct {
	// missing lists what the machine lacks.
	missing func(driver string) []string
	start   func(ctx context.Context, bin, driver string) (*world, error)
}

// withCNI is two hosts, three netmasters and an etcd of three members.
var withCNI = starter{
	missing: func(driver string) []string { return testcluster.Config{Driver: driver}.Missing() },
	start: func(ctx context.Context, bin, driver string) (*world, error) {
		l, err := testcluster.Up(ctx, testcluster.Config{Name: "ledger" + driver, BinDir: bin, Hosts: 2, Driver: driver, Replicas: 3})
		if err != nil {
			return nil, err
		}
		return &world{lab: l, runs: byCNI{l}, tenant: "blue", network: "net", make: makeBlue, down: l.Down}, nil
	},
}

// withDocker is the same with a Docker Engine on each host; as a peer it is one host
// with its engine alone.
var withDocker = starter{
	missing: func(driver string) []string {
		if driver == bridged {
			return append(testcluster.Config{Driver: testcluster.DriverEBPF, Bare: true, Embedded: true}.Missing(), docker.Missing()...)
		}
		return append(testcluster.Config{Driver: driver}.Missing(), docker.Missing()...)
	},
	start: func(ctx context.Context, bin, driver string) (_ *world, err error) {
		var w *world
		d := &byDocker{engines: map[string]*docker.Engine{}}
		if driver == bridged {
			l, err := testcluster.Up(ctx, testcluster.Config{Name: "ledgerdocker", BinDir: bin, Hosts: 1, Bare: true, Embedded: true})
			if err != nil {
				return nil, err
			}
			w = &world{lab: l, down: l.Down}
			d.network = func(testcluster.ContainerSpec) string { return "bridge" }
		} else {
			if w, err = withCNI.start(ctx, bin, driver); err != nil {
				return nil, err
			}
			d.network = func(s testcluster.ContainerSpec) string { return s.Group + "/" + s.Tenant }
		}
		w.runs = d
		defer func() {
			if err != nil {
				err = errors.Join(err, w.close())
			}
		}()
		for _, h := range w.lab.Hosts() {
			e, err := docker.New(h, "--live-restore")
			if err != nil {
				return nil, err
			}
			d.engines[h.Name] = e
			if driver != bridged {
				if err := h.RestartAgent(ctx, e.Env()...); err != nil {
					return nil, err
				}
			}
			if err := errors.Join(e.Start(ctx), e.Import(ctx)); err != nil {
				return nil, err
			}
		}
		return w, nil
	},
}

// withKubelet is a Kubernetes of two nodes, whose netmaster has its store in itself; as
// a peer it is one node, on which the stock plugin attaches pods.
var withKubelet = starter{
	missing: func(driver string) []string {
		if driver != bridged {
			return testcluster.Config{Driver: driver, Embedded: true}.Missing()
		}
		missing := testcluster.Config{Driver: testcluster.DriverEBPF, Bare: true, Embedded: true}.Missing()
		if _, err := os.Stat(filepath.Join(rig.Stock, "bridge")); err != nil {
			missing = append(missing, "the stock plugins are missing: apt-get install containernetworking-plugins")
		}
		return missing
	},
	start: func(ctx context.Context, bin, driver string) (_ *world, err error) {
		if err := kubernetes(ctx); err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "contiv-ledger-kube-")
		if err != nil {
			return nil, err
		}
		cfg := cluster.NodesConfig{Name: "ledk" + driver, Dir: dir, BinDir: bin, Nodes: 2, Driver: driver}
		if driver == bridged {
			cfg.Nodes, cfg.Driver, cfg.Bare = 1, testcluster.DriverEBPF, true
		}
		n, err := cluster.StartNodes(ctx, cfg)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		k := &byKubelet{n: n}
		w := &world{lab: n.Lab, runs: k, nodes: n, down: func() error { return errors.Join(n.Close(), os.RemoveAll(dir)) }}
		if driver != bridged {
			w.tenant, w.network, w.make = "default", "default-net", makeDefault
			return w, nil
		}
		k.leases = "host-local/stock"
		for _, h := range n.Lab.Hosts() {
			err = errors.Join(err, useStock(h))
		}
		if err == nil {
			err = n.AwaitReady(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		return w, nil
	},
}

// kubernetes has the Kubernetes of tests built, unless the environment names one.
func kubernetes(ctx context.Context) error {
	if os.Getenv(cluster.Program) != "" {
		return nil
	}
	root, err := testcluster.Root(ctx, ".")
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, filepath.Join(root, "tools/kube.sh"), "-nodes")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("build Kubernetes: %w", err)
	}
	return os.Setenv(cluster.Program, strings.TrimSpace(string(out)))
}

// useStock has a node attach pods by the stock bridge plugin with host-local addresses.
func useStock(h *testcluster.Host) error {
	list, err := rig.StockBridge(h, "10.99.0.0/16")
	if err != nil {
		return err
	}
	opt := filepath.Join(h.Dir, "node/opt/cni") // which is /opt/cni there
	for _, p := range []string{"bridge", "host-local"} {
		if err := os.Symlink(filepath.Join(rig.Stock, p), filepath.Join(opt, "bin", p)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(opt, "net.d/10-stock.conflist"), list.Bytes, 0o600)
}
