//go:build integration

package slice

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// bin holds the programs under test, built once for the package, or given by
// CONTIV_TEST_BIN.
var bin string

// What runs: make test-full runs everything on every driver; without -full each
// test runs on one driver that the seed (conformance.Seed) chooses, or on several where
// a fault of one is worst, and the matrix goes through every value of every
// dimension on all of them, in cases that the seed chooses, and through all pairs
// of values on the first.
var (
	drivers     = flag.String("drivers", "ebpf,ovs,mixed", "drivers to test, separated by commas")
	consul      = flag.String("consul", "", "path of a Consul that is the store instead of an etcd; empty = etcd")
	environment = testcluster.EnvironmentFlag()
)

// The drivers that a test makes sense on.
var (
	both = []string{testcluster.DriverEBPF, testcluster.DriverOVS}
	all  = []string{testcluster.DriverEBPF, testcluster.DriverOVS, testcluster.DriverMixed}
)

// machineEnv selects the tests that run: "own" = tests that need the machine for
// themselves, "shared" = the others, which may run beside other packages' tests; empty =
// all.
const machineEnv = "CONTIV_TEST_MACHINE"

// sharing has the names of the tests that called shared.
var sharing sync.Map

// shared is called by a test that judges no loads, and no times and losses that
// another lab or two beside it would change: such tests run side by side, as most
// of their time they wait. All others have the machine to themselves.
func shared(t *testing.T) {
	t.Helper()
	if os.Getenv(machineEnv) == "own" {
		t.Skip("it runs where the machine is shared")
	}
	sharing.Store(t.Name(), true)
	t.Parallel()
}

// sharedOnEBPF is called by a test of losses that onOne runs: where it runs on eBPF alone, it
// shares the machine, as in the kernel no load of others loses a packet.
func sharedOnEBPF(t *testing.T, list []string) {
	t.Helper()
	if !conformance.Full() && list[conformance.Choose(t.Name(), len(list))] == testcluster.DriverEBPF {
		shared(t)
	}
}

// on runs a test on each driver of a list, or without -full on its first n ones.
func on(t *testing.T, n int, list []string, test func(*testing.T, string)) {
	t.Helper()
	if _, ok := sharing.Load(t.Name()); !ok && os.Getenv(machineEnv) == "shared" {
		t.Skip("it has the machine to itself")
	}
	wanted := strings.Split(*drivers, ",")
	for i, d := range list {
		if slices.Contains(wanted, d) && (i < n || conformance.Full()) {
			t.Run(d, func(t *testing.T) { test(t, d) })
		}
	}
}

// onOne runs a test on one driver of a list, by the seed and its name, or with
// -full on all of them.
func onOne(t *testing.T, list []string, test func(*testing.T, string)) {
	t.Helper()
	i := conformance.Choose(t.Name(), len(list))
	t.Logf("begins with %s; -seed %d repeats it, -full takes all of %v", list[i], conformance.Seed(), list)
	on(t, 1, slices.Concat(list[i:], list[:i]), test)
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if bin = os.Getenv("CONTIV_TEST_BIN"); bin != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "contiv-slice-test-")
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

// anywhere is a test of one driver for on and onOne, with hosts in an environment that the
// seed and the test's name choose, or with -full in all of them.
func anywhere(test func(*testing.T, string, testcluster.Environment)) func(*testing.T, string) {
	return func(t *testing.T, driver string) {
		t.Helper()
		if *environment != testcluster.ChosenEnvironment || !conformance.Full() {
			test(t, driver, testcluster.ChooseEnvironment(t, *environment, driver, conformance.Choose))
			return
		}
		for _, e := range testcluster.EnvironmentsOf(driver) {
			t.Run("in "+cmp.Or(string(e), "plain"), func(t *testing.T) { test(t, driver, e) })
		}
	}
}

// in has a lab's hosts be in an environment.
func in(e testcluster.Environment) func(*testcluster.Config) {
	return func(cfg *testcluster.Config) { cfg.Environment = e }
}

// need skips a test that the machine cannot run, or fails it where everything
// must run.
func need(t *testing.T, paths ...string) {
	t.Helper()
	missing := testcluster.Config{Driver: testcluster.DriverMixed}.Missing()
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			missing = append(missing, p+" is missing")
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

// cluster is a lab with shorthands for tests.
type cluster struct {
	*testcluster.Lab
	t    *testing.T
	load int // of stream: multiplies its rate; 0 = 1
}

// up builds a lab of its own for a test. Its name begins with b and ends with the
// driver's first letter.
func up(t *testing.T, driver, name string, hosts int, change ...func(*testcluster.Config)) *cluster {
	t.Helper()
	need(t)
	cfg := testcluster.Config{Name: "b" + name + driver[:1], BinDir: bin, Hosts: hosts, Driver: driver, Consul: *consul}
	if *environment != testcluster.ChosenEnvironment {
		cfg.Environment = testcluster.Environment(*environment)
	}
	for _, f := range change {
		f(&cfg)
	}
	start := time.Now()
	l, err := testcluster.Up(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d hosts up in %v", cfg.Hosts, time.Since(start).Round(time.Millisecond))
	c := &cluster{Lab: l, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			for name, p := range l.Processes() {
				t.Logf("end of %s's log:\n%s", name, p.Tail(25))
			}
			for _, h := range l.Hosts() {
				t.Logf("what %s dropped:\n%s", h.Name, dropped(h))
			}
			if os.Getenv("CONTIV_TEST_KEEP") == "1" {
				t.Logf("kept in %s until the next run", cfg.Dir)
				return
			}
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// dropped is what a host in user space has dropped for want of time or room: packet
// sockets by which the switch reads (d in skmem), and its own counters.
func dropped(h *testcluster.Host) string {
	if h.Driver() != testcluster.DriverOVS || h.Switch.Vswitchd() == nil {
		return "not asked"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out []string
	sockets, err := h.Run(ctx, "ss", "-0", "-n", "-m", "-e")
	for entry := range strings.SplitSeq(strings.ReplaceAll(sockets, "\n\t", " "), "\n") {
		if err == nil && strings.Contains(entry, "skmem") && !strings.Contains(entry, ",d0)") {
			out = append(out, entry)
		}
	}
	for _, ask := range []string{"coverage/show", "dpctl/show -s"} {
		text, _ := h.Run(ctx, "ovs-appctl", append([]string{"-t", filepath.Join(h.RunDir(), "ovs-vswitchd.ctl")}, strings.Fields(ask)...)...) // it may have ended
		for line := range strings.Lines(text) {
			if strings.Contains(line, "drop") || strings.Contains(line, "lost") || strings.Contains(line, "lookups") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(out, "\n")
}

// netctl runs netctl commands, one a line; they must succeed.
func (c *cluster) netctl(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		if _, err := c.Masters.Netctl(c.t.Context(), strings.Fields(line)...); err != nil {
			c.t.Fatal(err)
		}
	}
}

// add attaches containers, in parallel, and lets them answer probes.
func (c *cluster) add(specs ...testcluster.ContainerSpec) {
	c.t.Helper()
	g, ctx := errgroup.WithContext(c.t.Context())
	for _, s := range specs {
		g.Go(func() error {
			if _, err := c.AddContainer(ctx, s); err != nil {
				return err
			}
			_, err := c.Serve(s.Name, s.Listen...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		c.t.Fatal(err)
	}
}

// spec is shorthand: name@host tenant/network[/group], listening on TCP and UDP 80.
func spec(name, host, where string) testcluster.ContainerSpec {
	f := append(strings.Split(where, "/"), "")
	return testcluster.ContainerSpec{Name: name, Host: host, Tenant: f[0], Network: f[1], Group: f[2], Listen: []string{"tcp/80", "udp/80"}}
}

func (c *cluster) host(name string) *testcluster.Host {
	c.t.Helper()
	h, err := c.Host(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

func (c *cluster) space(name string) *testcluster.Namespace {
	c.t.Helper()
	ns, err := c.Space(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return ns
}

// addr returns a container's address of a family, "4" or "6".
func (c *cluster) addr(name, family string) netip.Addr {
	c.t.Helper()
	a, err := c.Container(name)
	if err != nil {
		c.t.Fatal(err)
	}
	if family == "6" {
		return a.IPv6
	}
	return a.IPv4
}

// question reads "a b tcp/80" or "a b icmp 6".
func (c *cluster) question(line string) testcluster.Question {
	c.t.Helper()
	f := append(strings.Fields(line), "4")
	proto, port, _ := strings.Cut(f[2], "/")
	t := testcluster.Target{Proto: proto, Addr: c.addr(f[1], f[3])}
	if _, err := fmt.Sscan(port, &t.Port); err != nil && proto != "icmp" {
		c.t.Fatal(err)
	}
	return testcluster.Question{From: f[0], To: f[1], Target: t}
}

// ask probes once.
func (c *cluster) ask(line string, timeout time.Duration) testcluster.Answer {
	c.t.Helper()
	q := c.question(line)
	return c.space(q.From).Probe(c.t.Context(), q.Target, timeout)
}

// until waits two minutes for a check to return nil.
func (c *cluster) until(what string, check func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, what, check); err != nil {
		c.t.Fatal(err)
	}
}

// denied asks all lines at once; none may be answered.
func (c *cluster) denied(when string, lines ...string) {
	c.t.Helper()
	var qs []testcluster.Question
	for _, line := range lines {
		qs = append(qs, c.question(line))
	}
	for i, a := range c.AskAll(c.t.Context(), qs, 400*time.Millisecond) {
		if a.Verdict != testcluster.Denied || a.Err != nil {
			c.t.Errorf("%s: %s: %s, want denied", when, lines[i], a)
		}
	}
}

// wants asks until the answer is as wanted, at most 2 s.
func (c *cluster) wants(line string, want testcluster.Verdict) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	err := testcluster.Until(ctx, line+" to be "+string(want), func(context.Context) error {
		if a := c.ask(line, 300*time.Millisecond); a.Verdict != want || a.Err != nil {
			return fmt.Errorf("it is %s", a)
		}
		return nil
	})
	if err != nil {
		c.t.Error(err)
	}
}
