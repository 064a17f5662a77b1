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

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	dockerlab "github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

var environment = testcluster.EnvironmentFlag()

// bin holds the programs under test, built once, or given by CONTIV_TEST_BIN.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if q := os.Getenv(askEnv); q != "" {
			if err := ask(context.Background(), q); err != nil {
				fmt.Println(err)
				return 1
			}
			return 0
		}
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
		if err := testcluster.Build(context.Background(), ".", bin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func need(t *testing.T, cfg testcluster.Config) {
	t.Helper()
	missing := append(cfg.Missing(), dockerlab.Missing()...)
	if _, err := os.Stat(composeCLI); err != nil {
		missing = append(missing, composeCLI+" is missing: apt-get install docker-compose")
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
	*testcluster.Lab
	e     []*engine
	flows map[string]int // of hosts on Open vSwitch, before there was any container
}

func (b *bed) netctl(lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		if _, err := b.Masters.Netctl(b.t.Context(), strings.Fields(line)...); err != nil {
			b.t.Fatal(err)
		}
	}
}

// up builds a lab with a data plane of each kind, and makes networks.
func up(t *testing.T, name string) *bed {
	t.Helper()
	b := upWith(t, testcluster.Config{Name: fmt.Sprintf("%s%d", name, os.Getpid()), BinDir: bin, Hosts: 2, Driver: testcluster.DriverMixed}, nil)
	b.netctl("net create --subnet 10.21.1.0/24 --gateway 10.21.1.254 --subnetv6 fd21:1::/64 net1",
		"net create --subnet 10.21.2.0/28 lone",
		"policy create pol", "group create net1 web", "group create --policy pol net1 db",
		"policy rule-add --direction in --action deny --protocol tcp --port 80 --from-group web pol 1",
		"tenant create blue", "net create --tenant blue --subnet 10.21.1.0/24 --gateway 10.21.1.254 net1")
	for _, e := range b.e {
		e.networksAre(made...)
	}
	b.countFlows()
	return b
}

// made are the networks that up makes, as engines know them.
var made = []string{"net1", "lone", "web", "db", "net1/blue"}

// upWith builds a lab with an engine on each host.
func upWith(t *testing.T, cfg testcluster.Config, flags []string) *bed {
	t.Helper()
	cfg.Environment = testcluster.ChooseEnvironment(t, *environment, cfg.Driver, conformance.Choose)
	need(t, cfg)
	l, err := testcluster.Up(t.Context(), cfg)
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
		e := &engine{t: t, host: h}
		if e.Engine, err = dockerlab.New(h, flags...); err != nil {
			t.Fatal(err)
		}
		b.e = append(b.e, e)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("end of dockerd's log on %s:\n%s", h.Name, e.Log())
			}
			if err := e.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		e.must(h.RestartAgent(t.Context(), e.env()...))
		e.start()
		e.must(e.Import(t.Context()))
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

// sub runs a subtest with the bed's parts reporting to it.
func (b *bed) sub(name string, f func(b *bed)) {
	b.t.Run(name, func(t *testing.T) {
		s := &bed{t: t, Lab: b.Lab, flows: b.flows}
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

// TestEnginesRunContainersForTheirWholeLife drives two engines on two hosts through a container's life.
func TestEnginesRunContainersForTheirWholeLife(t *testing.T) {
	t.Parallel()
	b := up(t, "d")
	b.sub("Image", image)
	b.sub("Life", life)
	b.sub("Connect", connect)
	b.sub("Outside", outside)
	b.sub("Names", names)
	b.sub("LabelsFirst", labelsFirst)
}

// TestComposeFilesRunOnAPlainCluster: on a plain cluster.
func TestComposeFilesRunOnAPlainCluster(t *testing.T) {
	t.Parallel()
	b := up(t, "c")
	b.sub("Compose", composeFiles)
}

// TestEnginesKeepNetworksOverRestarts drives two engines through networks that come and go, many containers at
// once, and restarts.
func TestEnginesKeepNetworksOverRestarts(t *testing.T) {
	t.Parallel()
	b := up(t, "e")
	b.sub("Example", example)
	b.sub("StartTime", startTime)
	b.sub("Networks", networkLife)
	b.sub("Parallel", parallel)
	b.sub("Compose", compose)
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

	// IPv6, with an address and a MAC of the user's choice.
	two.run("v6", "--net web --ip6 fd21:1::77 --mac-address 02:00:00:00:00:77")
	if got := two.docker("exec v6 ip addr show eth0"); !strings.Contains(got, "fd21:1::77/64") || !strings.Contains(got, "02:00:00:00:00:77") {
		b.t.Errorf("v6 has\n%s", got)
	}
	one.reaches("w1", "ping", "fd21:1::77", true)
	one.reaches("w1", "ping", two.addr("v6", "web"), true)
	one.refused("run --rm --net web --mac-address 02:00:00:00:00:77 bb ip a", "02:00:00:00:00:77")
	two.docker("rm -f v6")

	// What cannot be.
	one.refused("run --rm --net web --ip 10.21.1.77 bb ip a", "10.21.1.77")
	one.refused("run --rm --net web --ip 10.99.1.1 bb ip a")
	one.refused("run --rm --net web --mac-address 02:02:00:00:00:01 bb ip a", "02:02")

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
func networkLife(b *bed) {
	one, two, all := b.e[0], b.e[1], made
	// A user removes one that Contiv made: it comes back.
	before := one.docker("network inspect -f {{.Id}} lone")
	one.docker("network rm lone")
	one.networksAre(all...)
	if after := one.docker("network inspect -f {{.Id}} lone"); after == before {
		b.t.Error("the network has not been made anew")
	}
	// Neither goes from under a running container.
	one.run("u1", "--net lone")
	if out, err := b.Masters.Netctl(b.t.Context(), "net", "rm", "lone"); err == nil {
		b.t.Errorf("a network goes from under its container: %s", out)
	}
	one.refused("network rm lone", "active endpoints")
	one.reaches("u1", "ping", one.addr("u1", "lone"), true)
	one.docker("rm -f u1")
	// A user makes one through Docker: it is Contiv's, and goes with Docker's.
	one.docker("network create -d netplugin --subnet 10.21.9.0/24 --ipam-driver netplugin --ipam-opt network=mine -o network=mine mine")
	for _, e := range b.e {
		e.networksAre(append([]string{"mine"}, all...)...)
	}
	if _, err := b.Masters.Netctl(b.t.Context(), "net", "inspect", "mine"); err != nil {
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
	if out, err := b.Masters.Netctl(b.t.Context(), "net", "inspect", "mine"); err == nil {
		b.t.Errorf("the network outlives Docker's: %s", out)
	}
	// Neither has to be told the name; Docker's own IPAM will do on one host.
	for _, ipam := range []string{"", "--ipam-driver netplugin"} {
		one.docker("network create -d netplugin --subnet 10.21.9.0/24 " + ipam + " -o tenant=blue ours")
		one.run("m1", "--net ours --ip 10.21.9.7")
		if _, err := b.Masters.Netctl(b.t.Context(), "net", "inspect", "-t", "blue", "ours"); err != nil {
			b.t.Error(err)
		}
		two.networksAre(append([]string{"ours/blue"}, all...)...)
		two.run("m2", "--net ours/blue")
		two.reaches("m2", "ping", "10.21.9.7", true)
		one.docker("rm -f m1")
		two.docker("rm -f m2")
		one.docker("network rm ours")
		for _, e := range b.e {
			e.networksAre(all...)
		}
	}
	// Docker has a network of this name itself, so that it lacks Contiv's: an alert fires.
	matching := one.scrape()
	b.netctl("net create --subnet 10.21.4.0/28 host")
	var differing testenv.Scrape
	one.until("the missing network to be a problem", 20*time.Second, func() error {
		differing = one.scrape()
		if differing[`contiv_netplugin_problems{job="netplugin",instance="`+one.host.Name+`:9006",kind="Docker networks"}`] == 0 {
			return errors.New("it is none")
		}
		return nil
	})
	testenv.AlertsFire(b.t, matching, differing, "ContivProblems")
	b.netctl("net rm host")
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
	one.refused("network create -d netplugin --subnet 10.21.3.0/24 x", "overlaps network default:lone")
	one.refused("network create -d netplugin --ipam-driver netplugin x", "network")
	// The engine would not take the subnet by itself while the host has a route of a service in it.
	b.netctl("service create --network lone --preferred-ip 10.21.3.9 --selector app=shop --port 80:80:tcp covers")
	one.until("the host leads to the service", time.Minute, func() error {
		if out, err := one.host.Run(b.t.Context(), "ip", "route"); err != nil || !strings.Contains(out, "10.21.3.9") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	one.refused("network create -d netplugin --ipam-driver netplugin --ipam-opt network=lone -o network=lone x", "10.21.3.9/32", "--subnet 10.21.3.0/28")
	b.netctl("service rm covers")
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
	one.run("r1", "--stop-timeout 1 --net net1 -p 8080:80")
	two.run("r2", "--net net1")
	peer := two.addr("r2", "net1")
	one.reaches("r1", "ping", peer, true)

	for _, e := range b.e {
		pings := make(chan string, 1)
		go func() {
			out, _ := one.try("exec", "r1", "ping", "-i", "0.05", "-c", "100", "-W", "1", peer)
			pings <- out
		}()
		if err := e.host.RestartAgent(b.t.Context(), e.env()...); err != nil {
			b.t.Fatal(err)
		}
		if out := <-pings; !strings.Contains(out, " 100 packets received") {
			b.t.Errorf("a restart of netplugin on %s loses packets:\n%s", e.host.Name, out[max(0, len(out)-200):])
		}
	}
	published := func() {
		b.t.Helper()
		one.until("the port is published", 5*time.Second, func() error { return b.wget("")(one.host.Address.String() + ":8080") })
	}
	published()
	one.docker("rm -f r1") // the new process knows the old one's endpoint
	one.run("r1", "--stop-timeout 1 --net net1 -p 8080:80")

	// In order: the engine stops its containers. What the cluster's networks
	// become meanwhile does not wait for it, and is there when it is back.
	one.stop()
	b.netctl("group create net1 late")
	one.start()
	late := func(wanted bool) func() error {
		return func() error {
			if there := strings.Contains(one.docker("network ls --format {{.Name}}"), "late"); there != wanted {
				return fmt.Errorf("network late is there: %v", there)
			}
			return nil
		}
	}
	one.until("the engine has the network made while it was away", 15*time.Second, late(true))
	b.netctl("group rm late")
	one.until("the network is gone", 15*time.Second, late(false))
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
	published()
	one.run("r3", "--net net1")
	one.reaches("r3", "ping", peer, true)

	one.docker("rm -f r1 r3")
	two.docker("rm -f r2")
	b.nothingLeft()
}

// startTime compares docker run on a Contiv network with a bridge network of
// Docker's, in turn, by their medians, and tells them: a figure is no reason to
// fail on a busy machine. On every network but the default bridge
// the engine also sets up its resolver inside the container, which runs iptables
// several times.
func startTime(b *bed) {
	e := b.e[0]
	e.docker("network create own")
	times := 2
	if conformance.Full() {
		times = 5
	}
	took, err := e.StartTimes(b.t.Context(), times, "bridge", "own", "net1")
	e.must(err)
	e.docker("network rm own")
	bridge, own, contiv := took["bridge"], took["own"], took["net1"]
	b.t.Logf("docker run takes %v on the default bridge, %v on a bridge network, %v on a Contiv network: %.2f and %.2f times",
		bridge, own, contiv, float64(contiv)/float64(bridge), float64(contiv)/float64(own))
	b.nothingLeft()
}
