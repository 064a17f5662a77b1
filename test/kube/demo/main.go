package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

func main() {
	var d demo
	flag.StringVar(&d.bin, "bin", "bin", "`directory` of the built programs")
	flag.BoolVar(&d.keep, "keep", false, "keep the cluster until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := d.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// name is the lab's.
const name = "kube"

type demo struct {
	bin     string
	keep    bool
	n       *cluster.Nodes
	engine  *docker.Engine
	address map[string]string // by who is asked
}

func (d *demo) run(ctx context.Context) (err error) {
	start := time.Now()
	if missing := append(testcluster.Config{Embedded: true}.Missing(), docker.Missing()...); len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	if d.bin, err = filepath.Abs(d.bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "contiv-demo-kube-")
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("\nCleaning up ...")
		if e := errors.Join(d.close(ctx), os.RemoveAll(dir)); e != nil {
			err = errors.Join(err, e)
			return
		}
		fmt.Printf("Everything is gone. %.0f s in all.\n", time.Since(start).Seconds())
	}()
	fmt.Println("Building a Kubernetes with two nodes, each a network namespace with netplugin (eBPF), containerd and a kubelet, and a Docker engine on h1 beside them:")
	if err := d.build(ctx, dir); err != nil {
		return err
	}
	progress("all of it", start)
	if err := d.show(ctx); err != nil || !d.keep {
		return err
	}
	d.hints()
	<-ctx.Done()
	return nil
}

func (d *demo) build(ctx context.Context, dir string) (err error) {
	began := time.Now()
	d.n, err = cluster.StartNodes(ctx, cluster.NodesConfig{Name: name, Dir: dir, BinDir: d.bin, Nodes: 2, Native: true, DNS: true})
	if err != nil {
		return err
	}
	progress("two nodes are ready", began)
	began = time.Now()
	h := d.n.Lab.Hosts()[0]
	if d.engine, err = docker.New(h, docker.Isolated...); err != nil {
		return err
	}
	if err := h.RestartAgent(ctx, d.engine.Env()...); err != nil {
		return err
	}
	if err := d.engine.Start(ctx); err != nil {
		return err
	}
	if err := d.engine.Import(ctx); err != nil {
		return err
	}
	progress("Docker on "+h.Name, began)
	return nil
}

// close ends all that was begun.
func (d *demo) close(ctx context.Context) (err error) {
	if d.engine != nil {
		err = d.engine.Close(context.WithoutCancel(ctx))
	}
	if d.n != nil {
		err = errors.Join(err, d.n.Close())
	}
	return err
}

// progress prints one line for a finished step.
func progress(step string, began time.Time) {
	fmt.Printf("  %-28s %6.1f s\n", step, time.Since(began).Seconds())
}

func (d *demo) hints() {
	tool := filepath.Join(d.bin, "contivlab") + " --lab " + name
	kubectl := "exec master " + os.Getenv(cluster.Program) + " kubectl --kubeconfig=" + d.n.Control.Kubeconfig
	fmt.Printf("\nThe cluster runs until you press Ctrl-C. In another terminal:\n  %[1]s %[2]s get pods -A -o wide\n  %[1]s netctl policy ls -a\n  %[1]s shell h1\n  docker -H unix://%[3]s ps\n", tool, kubectl, d.engine.Socket())
}
