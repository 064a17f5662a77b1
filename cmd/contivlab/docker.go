package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
)

// dockerIntent is what the demo of Docker tells netmaster.
var dockerIntent = []string{
	"network create -s 10.1.1.0/24 -g 10.1.1.254 shop",
	"group create shop web",
	"policy create to-app",
	"policy rule-add -d in -p 1 -j deny to-app nobody",
	"policy rule-add -d in -p 10 -l tcp -P 8080 -g web -j allow to-app web",
	"group create -p to-app shop app",
	"policy create to-db",
	"policy rule-add -d in -p 1 -j deny to-db nobody",
	"policy rule-add -d in -p 10 -l tcp -P 5432 -g app -j allow to-db app",
	"group create -p to-db shop db",
}

var dockerChange = []string{
	"policy rule-rm to-app web",
	"policy rule-add -d in -p 10 -l tcp -P 5432 -g web -j allow to-db web",
}

// dockerRun is a container of the demo. Its Docker engine is on the host with the same
// index.
type dockerRun struct {
	name, group, port string
	host              int
}

var dockerRuns = []dockerRun{
	{"web1", "web", "80", 0}, {"web2", "web", "80", 1}, {"app1", "app", "8080", 1}, {"db1", "db", "5432", 0},
}

// dockerPairs are the questions, with what the intent says before and after the
// change.
var dockerPairs = []struct {
	from, to      string
	before, after bool
}{
	{"web1", "web2", true, true},
	{"web1", "app1", true, false},
	{"web2", "app1", true, false},
	{"web1", "db1", false, true},
	{"app1", "db1", true, true},
	{"db1", "app1", false, false},
}

func demoDockerCommand(top *flags.Set, name *string) *command {
	var d dockerDemo
	var c *command
	c = newCommand("demo-docker", "Two Docker engines on two hosts: groups as networks, names, policy, and how long docker run takes", name, func(ctx context.Context, _ []string) error {
		d.name = *name
		if top.Given("lab")+c.flags.Given("lab") == "" {
			d.name = "docker" // beside the other demo's
		}
		return d.run(ctx)
	})
	keepFlag(c, &d.keep)
	d.rounds = 11
	c.flags.Int(&d.rounds, "rounds", "NUMBER", "how many containers to start on each network to tell how long it takes; 0 = none")
	return c
}

type dockerDemo struct {
	demo
	rounds  int
	engines []*docker.Engine
	addr    map[string]string
}

func (d *dockerDemo) run(ctx context.Context) (err error) {
	start := time.Now()
	if missing := docker.Missing(); len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	bin, err := programs()
	if err != nil {
		return err
	}
	fmt.Println("Building one netmaster with etcd and two hosts, each a network namespace with its own netplugin and Docker engine:")
	d.l, err = testcluster.Up(ctx, testcluster.Config{Name: d.name, BinDir: bin, Hosts: 2, Detach: d.keep, Progress: progress})
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
		var errs []error
		for _, e := range d.engines {
			errs = append(errs, e.Close(context.WithoutCancel(ctx)))
		}
		if e := errors.Join(append(errs, d.l.Down())...); e != nil {
			err = errors.Join(err, e)
			return
		}
		fmt.Printf("Everything is gone. %.1f s in all.\n", time.Since(start).Seconds())
	}()
	for _, h := range d.l.Hosts() {
		if err := d.startEngine(ctx, h); err != nil {
			return err
		}
	}
	fmt.Println("\nTelling netmaster the intent: one network over both hosts, three groups, who may talk to whom:")
	if err := d.netctl(ctx, dockerIntent); err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	fmt.Println("\nNames, asked inside a container on h1:")
	for _, name := range []string{"app1", "web"} {
		if err := d.resolve(ctx, "web1", name); err != nil {
			return err
		}
	}
	fmt.Println("\nWho reaches whom (TCP to the port that the container serves):")
	if err := d.probe(ctx, func(i int) bool { return dockerPairs[i].before }); err != nil {
		return err
	}
	fmt.Println("\nChanging the policy under running containers: web may no longer talk to app, but to db:")
	if err := d.netctl(ctx, dockerChange); err != nil {
		return err
	}
	if err := d.probe(ctx, func(i int) bool { return dockerPairs[i].after }); err != nil {
		return err
	}
	if err := d.compareStartTimes(ctx); err != nil {
		return err
	}
	if kept = d.keep; kept {
		e := d.engines[0]
		fmt.Printf("\nThe cluster keeps running. Two commands to try:\n  docker -H unix://%s run --rm -it --net web bb sh\n  %s --lab %s netctl group ls\nand when you have seen enough: %[2]s --lab %[3]s down\n",
			e.Socket(), filepath.Join(bin, "contivlab"), d.name)
	}
	return nil
}

func (d *dockerDemo) startEngine(ctx context.Context, h *testcluster.Host) error {
	start := time.Now()
	e, err := docker.New(h)
	if err != nil {
		return err
	}
	d.engines = append(d.engines, e)
	if err := h.RestartAgent(ctx, e.Env()...); err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	if err := e.Import(ctx); err != nil {
		return err
	}
	progress("Docker on "+h.Name, time.Since(start))
	return nil
}

// start waits for the groups to be networks of both engines and starts the
// containers.
func (d *dockerDemo) start(ctx context.Context) error {
	for _, e := range d.engines {
		limit, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := testcluster.Until(limit, "the groups are networks of Docker on "+e.Host.Name, func(ctx context.Context) error {
			out, err := e.Docker(ctx, "network", "inspect", "web", "app", "db", "shop", "-f", "{{.Name}}")
			if err != nil {
				return errors.New(out)
			}
			return nil
		})
		cancel()
		if err != nil {
			return err
		}
	}
	fmt.Println("\nStarting containers; every group is a network of Docker:")
	d.addr = map[string]string{}
	for _, r := range dockerRuns {
		e := d.engines[r.host]
		args := []string{"run", "-d", "--name", r.name, "--net", r.group, docker.Image, "httpd", "-f", "-h", "/www", "-p", r.port}
		begin := time.Now()
		if _, err := e.Docker(ctx, args...); err != nil {
			return err
		}
		took := time.Since(begin)
		out, err := e.Docker(ctx, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", r.name)
		if err != nil {
			return err
		}
		d.addr[r.name] = out
		fmt.Printf("  %s$ docker %-58s %-12s %4.0f ms\n", e.Host.Name, strings.Join(args[:6], " ")+" ...", out, float64(took.Microseconds())/1000)
	}
	return nil
}

// resolve shows what Docker's resolver in a container makes of a name.
func (d *dockerDemo) resolve(ctx context.Context, in, name string) error {
	limit, cancel := context.WithTimeout(ctx, 15*time.Second) // names come with the engine's events
	defer cancel()
	var found []string
	err := testcluster.Until(limit, "name "+name, func(ctx context.Context) error {
		out, err := d.engineOf(in).Docker(ctx, "exec", in, "nslookup", "-type=a", name, "127.0.0.11")
		if err != nil {
			return err
		}
		found = nil
		for line := range strings.Lines(out) {
			if a, ok := strings.CutPrefix(strings.TrimSpace(line), "Address: "); ok && !strings.Contains(a, ":53") {
				found = append(found, a)
			}
		}
		if len(found) == 0 {
			return errors.New(out)
		}
		return nil
	})
	fmt.Printf("  %-6s is %s\n", name, strings.Join(found, ", "))
	return err
}

func (d *dockerDemo) engineOf(name string) *docker.Engine {
	i := slices.IndexFunc(dockerRuns, func(r dockerRun) bool { return r.name == name })
	return d.engines[dockerRuns[i].host]
}

// probe tries every pair; a change of policy may take a second.
func (d *dockerDemo) probe(ctx context.Context, want func(i int) bool) error {
	words := map[bool]string{true: "yes", false: "no"}
	fmt.Printf("  %-8s %-8s %-8s %s\n", "from", "to", "intent", "seen")
	for i, p := range dockerPairs {
		port := dockerRuns[slices.IndexFunc(dockerRuns, func(r dockerRun) bool { return r.name == p.to })].port
		limit, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := testcluster.Until(limit, p.from+" to "+p.to, func(ctx context.Context) error {
			out, err := d.engineOf(p.from).Docker(ctx, "exec", p.from, "sh", "-c", "nc -w 1 "+d.addr[p.to]+" "+port+" </dev/null")
			if (err == nil) != want(i) {
				return fmt.Errorf("it is %s, but the intent is %s: %s", words[err == nil], words[want(i)], out)
			}
			return nil
		})
		cancel()
		if err != nil {
			return err
		}
		fmt.Printf("  %-8s %-8s %-8s %s\n", p.from, p.to, words[want(i)], words[want(i)])
	}
	return nil
}

// compareStartTimes starts containers on Docker's own networks and on Contiv's, in turn,
// and tells the medians.
func (d *dockerDemo) compareStartTimes(ctx context.Context) error {
	if d.rounds == 0 {
		return nil
	}
	e := d.engines[0]
	const own = "own-bridge"
	if _, err := e.Docker(ctx, "network", "create", own); err != nil {
		return err
	}
	fmt.Printf("\nHow long docker run takes on h1, medians of %d in turn:\n", d.rounds)
	took, err := e.StartTimes(ctx, d.rounds, "bridge", own, "web")
	if err != nil {
		return err
	}
	for _, n := range []struct{ network, what string }{
		{"bridge", "Docker's default bridge"}, {own, "a bridge network of Docker's"}, {"web", "the Contiv group web"},
	} {
		fmt.Printf("  %-30s %4d ms   %.2f of the default bridge, %.2f of a bridge network\n", n.what, took[n.network].Milliseconds(),
			float64(took[n.network])/float64(took["bridge"]), float64(took[n.network])/float64(took[own]))
	}
	_, err = e.Docker(ctx, "network", "rm", own)
	return err
}
