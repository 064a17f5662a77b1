package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// intent is what the demo tells netmaster, in netctl's words.
var intent = []string{
	"tenant create blue",
	"tenant create green",
	"network create -t blue -e vxlan -s 10.1.1.0/24 -g 10.1.1.1 --subnetv6 fd00:1::/64 shop",
	"network create -t green -e vxlan -s 10.1.1.0/24 -g 10.1.1.1 shop",
	"network create -t blue -e vlan -p 7 -s 10.1.2.0/24 legacy",
	"group create -t blue shop web",
	"policy create -t blue to-app",
	"policy rule-add -t blue -d in -p 1 -j deny to-app nobody",
	"policy rule-add -t blue -d in -p 10 -l tcp -P 8080 -g web -j allow to-app web",
	"group create -t blue -p to-app shop app",
	"policy create -t blue to-db",
	"policy rule-add -t blue -d in -p 1 -j deny to-db nobody",
	"policy rule-add -t blue -d in -p 10 -l tcp -P 5432 -g app -j allow to-db app",
	"group create -t blue -p to-db shop db",
	"group create -t green shop web",
}

// change is what the demo does to the running cluster: the first command closes
// a connection, the second opens one.
var change = []string{
	"policy rule-rm -t blue to-app web",
	"policy rule-add -t blue -d in -p 10 -l tcp -P 5432 -g web -j allow to-db web",
}

// members are the demo's containers. Those of green get the addresses that
// blue's have.
var members = []testcluster.ContainerSpec{
	{Name: "web1", Host: "h1", Tenant: "blue", Network: "shop", Group: "web", Listen: []string{"tcp/80"}},
	{Name: "web2", Host: "h2", Tenant: "blue", Network: "shop", Group: "web", Listen: []string{"tcp/80"}},
	{Name: "app1", Host: "h2", Tenant: "blue", Network: "shop", Group: "app", Listen: []string{"tcp/8080"}},
	{Name: "db1", Host: "h3", Tenant: "blue", Network: "shop", Group: "db", Listen: []string{"tcp/5432"}},
	{Name: "green1", Host: "h1", Tenant: "green", Network: "shop", Group: "web", Listen: []string{"tcp/80"}},
	{Name: "green2", Host: "h3", Tenant: "green", Network: "shop", Group: "web", Listen: []string{"tcp/80"}},
	{Name: "old1", Host: "h1", Tenant: "blue", Network: "legacy", Listen: []string{"tcp/80"}},
	{Name: "old2", Host: "h2", Tenant: "blue", Network: "legacy", Listen: []string{"tcp/80"}},
}

// pairs are the questions of the demo's matrix: from, to, port; "6" asks over IPv6.
var pairs = []string{
	"web1 web2 tcp/80", "web1 app1 tcp/8080", "web1 app1 tcp/8080 6", "web2 app1 tcp/8080", "web1 app1 icmp",
	"web1 db1 tcp/5432", "web2 db1 tcp/5432 6", "app1 db1 tcp/5432", "app1 db1 tcp/5432 6", "app1 db1 icmp",
	"app1 web1 tcp/80", "app1 web2 icmp", "db1 app1 tcp/8080", "db1 web1 tcp/80", "db1 web1 icmp 6",
	"green1 green2 tcp/80", "green2 green1 icmp", "old1 old2 tcp/80", "old2 old1 icmp",
}

// driverNames says what forwards packets, by driver.
var driverNames = map[string]string{
	testcluster.DriverEBPF:  "which forwards in the kernel with eBPF",
	testcluster.DriverOVS:   "which forwards with its own Open vSwitch",
	testcluster.DriverMixed: "some with eBPF in the kernel, some with an Open vSwitch of their own",
}

func demoCommand(name *string) *command {
	var d demo
	c := newCommand("demo", "Three hosts, two tenants, a policy: which connections are allowed, before and after a live change", name, func(ctx context.Context, _ []string) error {
		d.name = *name
		return d.run(ctx)
	})
	driverFlag(c, &d.driver)
	embeddedFlag(c, &d.embedded)
	keepFlag(c, &d.keep)
	return c
}

func keepFlag(c *command, to *bool) {
	c.flags.Bool(to, "keep", "leave the cluster running")
}

type demo struct {
	name, driver   string
	keep, embedded bool
	l              *testcluster.Lab
}

func (d *demo) run(ctx context.Context) (err error) {
	start := time.Now()
	bin, err := programs()
	if err != nil {
		return err
	}
	fmt.Println("Building one netmaster with etcd and three hosts, each a network namespace with its own netplugin, " + driverNames[d.driver] + ":")
	d.l, err = testcluster.Up(ctx, testcluster.Config{Name: d.name, BinDir: bin, Hosts: 3, Driver: d.driver, Embedded: d.embedded, Detach: d.keep, Progress: progress})
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if kept {
			d.l.Close()
			return
		}
		fmt.Println("\nCleaning up ...")
		if e := d.l.Down(); e != nil {
			err = errors.Join(err, e)
			return
		}
		fmt.Printf("Everything is gone. %.1f s in all.\n", time.Since(start).Seconds())
	}()
	fmt.Println("\nTelling netmaster the intent: two tenants with the same subnet, a VXLAN and a VLAN network, groups and policies:")
	if err := d.netctl(ctx, intent); err != nil {
		return err
	}
	if err := d.attach(ctx); err != nil {
		return err
	}
	fmt.Println("\nWho reaches whom (expected: computed from the intent; seen: tried from inside the containers):")
	before, err := d.matrix(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Println("\nChanging the policy under running containers: web may no longer talk to app, but to db:")
	if err := d.netctl(ctx, change); err != nil {
		return err
	}
	fmt.Println("\nThe same questions again:")
	if _, err := d.matrix(ctx, before); err != nil {
		return err
	}
	if d.keep {
		if err := d.keepServing(ctx); err != nil {
			return err
		}
		kept = true
	}
	d.hints(bin)
	return nil
}

// netctl runs netctl commands and prints each as it runs.
func (d *demo) netctl(ctx context.Context, lines []string) error {
	for _, line := range lines {
		fmt.Println("  $ netctl " + line)
		if _, err := d.l.Masters.Netctl(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// attach adds the containers one after another, so that addresses come in the
// same order at every run.
func (d *demo) attach(ctx context.Context) error {
	fmt.Println("\nAttaching containers with CNI (contivk8s):")
	for _, m := range members {
		start := time.Now()
		a, err := d.l.AddContainer(ctx, m)
		if err != nil {
			return err
		}
		what := m.Tenant + "/" + m.Network
		if m.Group != "" {
			what += " group " + m.Group
		}
		addr := a.IPv4.String()
		if a.IPv6.IsValid() {
			addr += " " + a.IPv6.String()
		}
		fmt.Printf("  %-7s on %s  %-22s %-22s %4.0f ms\n", m.Name, m.Host, what, addr, float64(time.Since(start).Microseconds())/1000)
	}
	return serveAll(d.l)
}

// matrix runs the demo's probes, prints the answers and marks the ones that differ from
// before. It fails if an answer contradicts the intent.
func (d *demo) matrix(ctx context.Context, before []testcluster.Row) ([]testcluster.Row, error) {
	qs, err := parseProbes(d.l, pairs)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	rows, err := d.l.Matrix(ctx, qs)
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	return rows, printMatrix(d.l, rows, before, took)
}

// keepServing hands the answering of probes to a process that stays.
func (d *demo) keepServing(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d.l.StopServing()
	return d.l.StartServing(ctx, self)
}

func (d *demo) hints(bin string) {
	tool := filepath.Join(bin, "contivlab")
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, tool); err == nil && !strings.HasPrefix(rel, "..") {
			tool = rel
		}
	}
	if d.name != "demo" {
		tool += " --lab " + d.name
	}
	if d.keep {
		fmt.Println("\nThe cluster keeps running. Three commands to try:")
	} else {
		fmt.Println("\nThree commands to try after `make demo KEEP=1`, which leaves the cluster running:")
	}
	fmt.Printf("  %s netctl monitor --drops           # shows what is denied and why, while in a second terminal\n  %s probe web1 app1 tcp/8080         # a client connects\n  %s shell h1\n", tool, tool, tool)
	if d.keep {
		fmt.Printf("and when you have seen enough: %s down\n", tool)
	}
}
