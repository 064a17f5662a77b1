//go:build integration

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// bin holds the programs under test, built once, or given by CONTIV_TEST_BIN.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if bin = os.Getenv("CONTIV_TEST_BIN"); bin != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "contiv-docker-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }() // in the temporary directory
		bin = filepath.Join(dir, "bin")
		if err := lab.Build(context.Background(), ".", bin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func need(t *testing.T) {
	t.Helper()
	missing := lab.Missing(false)
	for path, pkg := range map[string]string{"/usr/sbin/dockerd": "docker.io", dockerCLI: "docker.io", "/bin/busybox": "busybox-static"} {
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, path+" is missing: apt-get install "+pkg)
		}
	}
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatal(strings.Join(missing, "; "))
	}
	t.Skip(strings.Join(missing, "; "))
}

// bed is two simulated hosts with a Docker engine each.
type bed struct {
	t *testing.T
	*lab.Lab
	e []*engine
}

func (b *bed) netctl(lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		if _, err := b.Netctl(b.t.Context(), strings.Fields(line)...); err != nil {
			b.t.Fatal(err)
		}
	}
}

func up(t *testing.T) *bed {
	t.Helper()
	need(t)
	l, err := lab.Up(t.Context(), lab.Config{Name: fmt.Sprintf("d%d", os.Getpid()), BinDir: bin, Hosts: 2})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, Lab: l}
	t.Cleanup(func() {
		if t.Failed() {
			for name, p := range l.Processes() {
				if strings.HasSuffix(name, "netplugin") || name == "netmaster" {
					t.Logf("end of %s's log:\n%s", name, p.Tail(60))
				}
			}
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	for _, h := range l.Hosts() {
		dir, err := os.MkdirTemp("", "d-") //nolint:usetesting // t.TempDir may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		e := &engine{t: t, host: h, dir: dir}
		b.e = append(b.e, e)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("end of dockerd's log on %s:\n%s", h.Name, e.log())
			}
			if e.cmd != nil {
				if ids, err := e.try("ps", "-aq"); err == nil && ids != "" {
					_, _ = e.try(append([]string{"rm", "-f"}, strings.Fields(ids)...)...) // what a failed test left
				}
			}
			e.stop()
			e.close()
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		if err := h.RestartAgent(t.Context(), e.env()...); err != nil {
			t.Fatal(err)
		}
		e.space()
		e.start()
		e.image()
	}
	return b
}

// networksAre waits until an engine's networks of ours have exactly the names.
func (e *engine) networksAre(names ...string) {
	e.t.Helper()
	slices.Sort(names)
	e.until("networks "+strings.Join(names, " ")+" on "+e.host.Name, 15*time.Second, func() error {
		got := strings.Fields(e.docker("network ls --filter driver=netplugin --format {{.Name}}"))
		slices.Sort(got)
		if !slices.Equal(got, names) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// left counts what containers leave behind on a host.
func (b *bed) left() error {
	var errs []error
	for _, e := range b.e {
		links, err := e.host.NS.Links()
		errs = append(errs, err)
		for _, l := range links {
			if strings.HasPrefix(l, "cv") || strings.HasPrefix(l, "cw") {
				errs = append(errs, fmt.Errorf("%s: interface %s", e.host.Name, l))
			}
		}
		files, err := filepath.Glob(filepath.Join(e.host.StateDir(), "attach", "*.json"))
		errs = append(errs, err)
		if len(files) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d journal entries", e.host.Name, len(files)))
		}
		ports, err := e.host.Vsctl(b.t.Context(), "list-ports", "contivBr")
		errs = append(errs, err)
		for p := range strings.FieldsSeq(ports) {
			if strings.HasPrefix(p, "cv") {
				errs = append(errs, fmt.Errorf("%s: port %s", e.host.Name, p))
			}
		}
	}
	c, err := b.API()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer c.Close()
	nets, err := c.Networks().List(b.t.Context())
	errs = append(errs, err)
	for _, n := range nets {
		i, err := c.Networks().Inspect(b.t.Context(), n.ObjectKey())
		errs = append(errs, err)
		if err == nil && (i.Oper.NumEndpoints != 0 || len(i.Oper.Endpoints) != 0 || i.Oper.AllocatedAddressesCount != 0) {
			errs = append(errs, fmt.Errorf("network %s: %d endpoints, addresses %s", n.ObjectKey(), i.Oper.NumEndpoints, i.Oper.AllocatedIPAddresses))
		}
	}
	return errors.Join(errs...)
}

func (b *bed) nothingLeft() {
	b.t.Helper()
	b.e[0].until("nothing is left", 15*time.Second, b.left)
}

// sub runs a subtest with the bed's parts reporting to it.
func (b *bed) sub(name string, f func(b *bed)) {
	b.t.Run(name, func(t *testing.T) {
		s := &bed{t: t, Lab: b.Lab}
		for _, e := range b.e {
			e.t = t
			s.e = append(s.e, e)
		}
		defer func() {
			for _, e := range b.e {
				e.t = b.t
			}
		}()
		f(s)
	})
}

// TestDocker drives two engines on two hosts through a container's life.
func TestDocker(t *testing.T) {
	b := up(t)
	b.netctl("net create --subnet 10.21.1.0/24 --gateway 10.21.1.254 net1",
		"net create --subnet 10.21.2.0/28 lone",
		"policy create pol", "group create net1 web", "group create --policy pol net1 db",
		"policy rule-add --direction in --action deny --protocol tcp --port 80 --from-group web pol 1",
		"tenant create blue", "net create --tenant blue --subnet 10.21.1.0/24 --gateway 10.21.1.254 net1")
	all := []string{"net1", "lone", "web", "db", "net1/blue"}
	for _, e := range b.e {
		e.networksAre(all...)
	}
	b.sub("Life", life)
	b.sub("Example", example)
	b.sub("StartTime", startTime)
	b.sub("Networks", func(b *bed) { networkLife(b, all) })
	b.sub("Parallel", parallel)
	b.sub("Restarts", restarts)
}

// life: containers on two hosts reach each other as policy says; chosen
// addresses; connect and disconnect; restart; kill.
func life(b *bed) {
	one, two := b.e[0], b.e[1]
	one.run("w1", "--net web")
	two.run("w2", "--net web --ip 10.21.1.77")
	two.run("d2", "--net db")
	one.run("b1", "--net net1/blue")
	if got := two.addr("w2", "web"); got != "10.21.1.77" {
		b.t.Errorf("w2 has %s, not the address asked for", got)
	}
	one.reaches("w1", "ping", "10.21.1.77", true)
	one.reaches("w1", "80", "10.21.1.77", true)
	db := two.addr("d2", "db")
	one.reaches("w1", "ping", db, true)
	one.reaches("w1", "80", db, false) // the rule
	two.reaches("w2", "80", db, false)
	one.reaches("b1", "ping", db, false) // another tenant
	b.netctl("policy rule-rm pol 1")
	one.reaches("w1", "80", db, true)
	b.netctl("policy rule-add --direction in --action deny --protocol tcp --port 80 --from-group web pol 1")
	one.reaches("w1", "80", db, false)

	// What cannot be.
	one.refused("run --rm --net web --ip 10.21.1.77 bb ip a", "10.21.1.77")
	one.refused("run --rm --net web --ip 10.99.1.1 bb ip a")
	one.refused("run --rm --net web --mac-address 02:00:00:00:00:01 bb ip a", "MacAddress")

	// A second network, and away again.
	one.docker("network connect lone w1")
	one.run("l1", "--net lone")
	one.reaches("w1", "ping", one.addr("l1", "lone"), true)
	one.reaches("w1", "ping", "10.21.1.77", true)
	one.docker("network disconnect lone w1")
	one.reaches("w1", "ping", one.addr("l1", "lone"), false)

	one.docker("restart -t 0 w1")
	one.reaches("w1", "ping", "10.21.1.77", true)
	two.docker("kill w2")
	one.reaches("w1", "ping", "10.21.1.77", false)
	two.docker("start w2")
	one.reaches("w1", "ping", "10.21.1.77", true)

	one.docker("rm -f w1 b1 l1")
	two.docker("rm -f w2 d2")
	b.nothingLeft()
}

// networkLife: networks come and go on every engine, by Contiv and by Docker.
func networkLife(b *bed, all []string) {
	one, two := b.e[0], b.e[1]
	// A user removes one that Contiv made: it comes back.
	before := one.docker("network inspect -f {{.Id}} lone")
	one.docker("network rm lone")
	one.networksAre(all...)
	if after := one.docker("network inspect -f {{.Id}} lone"); after == before {
		b.t.Error("the network has not been made anew")
	}
	// A user makes one through Docker: it is Contiv's, and goes with Docker's.
	one.docker("network create -d netplugin --subnet 10.21.9.0/24 --ipam-driver netplugin --ipam-opt network=mine -o network=mine mine")
	for _, e := range b.e {
		e.networksAre(append([]string{"mine"}, all...)...)
	}
	if _, err := b.Netctl(b.t.Context(), "net", "inspect", "mine"); err != nil {
		b.t.Error(err)
	}
	one.run("m1", "--net mine")
	two.run("m2", "--net mine")
	two.reaches("m2", "ping", one.addr("m1", "mine"), true)
	one.docker("rm -f m1")
	two.docker("rm -f m2")
	one.docker("network rm mine")
	for _, e := range b.e {
		e.networksAre(all...)
	}
	if out, err := b.Netctl(b.t.Context(), "net", "inspect", "mine"); err == nil {
		b.t.Errorf("the network outlives Docker's: %s", out)
	}
	// A Contiv network goes: so do Docker's, and it may come back otherwise.
	b.netctl("net rm lone")
	for _, e := range b.e {
		e.networksAre("net1", "web", "db", "net1/blue")
	}
	b.netctl("net create --subnet 10.21.3.0/28 lone")
	for _, e := range b.e {
		e.networksAre(all...)
	}
	one.refused("network create -d netplugin --subnet 10.21.8.0/24 --ipam-driver netplugin --ipam-opt network=lone -o network=lone x", "10.21.3.0/28")
	one.refused("network create -d netplugin --subnet 10.21.8.0/24 x", "network")
	one.networksAre(all...)
	b.nothingLeft()
}

// parallel starts 20 containers at once on two engines and removes them at once.
func parallel(b *bed) {
	each := func(what string, f func(e *engine, name string) error) {
		b.t.Helper()
		start := time.Now()
		var g sync.WaitGroup
		for i := range 20 {
			e := b.e[i%2]
			g.Go(func() {
				if err := f(e, fmt.Sprintf("p%d", i)); err != nil {
					b.t.Error(err)
				}
			})
		}
		g.Wait()
		b.t.Logf("%s of 20 containers took %v", what, time.Since(start).Round(time.Millisecond))
	}
	each("start", func(e *engine, name string) error {
		_, err := e.try("run", "-d", "--name", name, "--net", "net1", "bb", "sleep", "1000")
		return err
	})
	if b.t.Failed() {
		return
	}
	for _, i := range []int{1, 2, 19} {
		b.e[0].reaches("p0", "ping", b.e[i%2].addr(fmt.Sprintf("p%d", i), "net1"), true)
	}
	each("removal", func(e *engine, name string) error {
		_, err := e.try("rm", "-f", name)
		return err
	})
	b.nothingLeft()
}

// restarts: netplugin under traffic; an engine in order, killed, and with its
// containers alive.
func restarts(b *bed) {
	one, two := b.e[0], b.e[1]
	one.run("r1", "--net net1")
	two.run("r2", "--net net1")
	peer := two.addr("r2", "net1")
	one.reaches("r1", "ping", peer, true)

	pings := make(chan string, 1)
	go func() {
		out, _ := one.try("exec", "r1", "ping", "-i", "0.05", "-c", "100", "-W", "1", peer)
		pings <- out
	}()
	if err := one.host.RestartAgent(b.t.Context(), one.env()...); err != nil {
		b.t.Fatal(err)
	}
	if out := <-pings; !strings.Contains(out, " 100 packets received") {
		b.t.Errorf("a restart of netplugin loses packets:\n%s", out[max(0, len(out)-200):])
	}
	one.docker("rm -f r1") // the new process knows the old one's endpoint
	one.run("r1", "--net net1")

	// In order: the engine stops its containers.
	one.stop()
	one.start()
	one.docker("start r1")
	one.reaches("r1", "ping", peer, true)
	// Killed: its containers die when it comes back.
	one.kill()
	one.start()
	one.docker("start r1")
	one.reaches("r1", "ping", peer, true)
	// live-restore: the container outlives the engine.
	one.stop()
	one.start("--live-restore")
	one.docker("start r1")
	one.reaches("r1", "ping", peer, true)
	pid := one.docker("inspect -f {{.State.Pid}} r1")
	one.stop()
	two.reaches("r2", "ping", "10.21.1.254", false)
	one.start("--live-restore")
	if got := one.docker("inspect -f {{.State.Pid}} r1"); got != pid {
		b.t.Errorf("the container did not outlive the engine: process %s, now %s", pid, got)
	}
	one.reaches("r1", "ping", peer, true)
	one.run("r3", "--net net1")
	one.reaches("r3", "ping", peer, true)

	one.docker("rm -f r1 r3")
	two.docker("rm -f r2")
	b.nothingLeft()
}

// example: the policy of examples/compose is what its page says.
func example(b *bed) {
	one, two := b.e[0], b.e[1]
	script, err := filepath.Abs("../../examples/compose/policy.sh")
	if err != nil {
		b.t.Fatal(err)
	}
	for range 2 {
		c := b.Master.Command(b.t.Context(), "sh", script)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "NETMASTER="+b.MasterURL())
		if out, err := c.CombinedOutput(); err != nil {
			b.t.Fatalf("%v: %s", err, out)
		}
	}
	names := []string{"net1", "lone", "web", "db", "net1/blue", "shop", "shop-web", "shop-app", "shop-db"}
	for _, e := range b.e {
		e.networksAre(names...)
	}
	serve := func(e *engine, name, ip, port string) {
		e.docker("run -d --name " + name + " --net shop-" + name + " --ip " + ip + " bb httpd -f -h /www -p " + port)
	}
	serve(one, "web", "10.77.0.10", "80")
	serve(two, "app", "10.77.0.20", "8080")
	serve(one, "db", "10.77.0.30", "5432")
	one.reaches("web", "8080", "10.77.0.20", true)
	two.reaches("app", "5432", "10.77.0.30", true)
	one.reaches("web", "5432", "10.77.0.30", false)
	one.reaches("db", "8080", "10.77.0.20", false)
	one.docker("rm -f web db")
	two.docker("rm -f app")
	b.nothingLeft()
	b.netctl("policy rule-rm shop-app web", "policy rule-rm shop-db app", "group rm shop-web", "group rm shop-app", "group rm shop-db", "net rm shop", "policy rm shop-app", "policy rm shop-db")
}

// startTime compares docker run on a Contiv network with a bridge network of
// Docker's, in turn, by their medians, and tells them: a figure is no reason to
// fail on a busy machine. On every network but the default bridge
// the engine also sets up its resolver inside the container, which runs iptables
// several times.
func startTime(b *bed) {
	const rounds = 11
	e := b.e[0]
	e.docker("network create own")
	took := map[string][]time.Duration{}
	for i := range rounds {
		for _, network := range []string{"bridge", "own", "net1"} {
			name := fmt.Sprintf("s%d%s", i, network)
			start := time.Now()
			e.docker("run -d --name " + name + " --net " + network + " bb sleep 1000")
			took[network] = append(took[network], time.Since(start))
			e.docker("rm -f " + name)
		}
	}
	e.docker("network rm own")
	median := func(network string) time.Duration {
		slices.Sort(took[network])
		return took[network][rounds/2].Round(time.Millisecond)
	}
	bridge, own, contiv := median("bridge"), median("own"), median("net1")
	b.t.Logf("docker run takes %v on the default bridge, %v on a bridge network, %v on a Contiv network: %.2f and %.2f times",
		bridge, own, contiv, float64(contiv)/float64(bridge), float64(contiv)/float64(own))
	b.nothingLeft()
}
