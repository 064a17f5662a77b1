//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// The version that clusters are upgraded from, and where its programs may be given.
const (
	upgradedFrom = "f8f32786"
	oldEnv       = "CONTIV_OLD_BIN"
)

// TestUpgradeLosesNothing upgrades a cluster of the version f8f32786 under traffic, in the order of
// docs/how-to/upgrade.md, on each store and driver: netmaster, then one netplugin after the
// other. Allowed connections lose no more than by a restart of one version, denied ones
// stay denied, objects and attachments are read again, and hosts are well.
func TestUpgradeLosesNothing(t *testing.T) {
	old := os.Getenv(oldEnv)
	if old == "" && !conformance.Full() {
		t.Skipf("it builds the programs of %s, which takes minutes: -full, or %s=DIRECTORY with them", upgradedFrom, oldEnv)
	}
	if old == "" {
		old = programsOf(t, upgradedFrom, true)
	}
	stores := map[string]func(*testcluster.Config){
		"embedded": func(cfg *testcluster.Config) { cfg.Embedded, cfg.Consul = true, "" },
		"etcd":     func(cfg *testcluster.Config) { cfg.Consul = "" },
		"secure":   func(cfg *testcluster.Config) { cfg.Embedded, cfg.Secure, cfg.Consul = true, true, "" },
	}
	if *consul != "" {
		stores["consul"] = func(*testcluster.Config) {}
	}
	t.Run("flags", func(t *testing.T) {
		for program, gone := range map[string][]string{"netmaster": {"--services"}, "netplugin": {"--mirror-from"}} {
			if refused := refusedFlags(t, filepath.Join(old, program), filepath.Join(bin, program)); !slices.Equal(refused, gone) {
				t.Errorf("%s does not take flags of %s any more: %v; docs/how-to/upgrade.md names %v", program, upgradedFrom, refused, gone)
			}
		}
	})
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			on(t, len(both), both, func(t *testing.T, driver string) { upgrade(t, driver, name, old, store) })
		})
	}
}

func upgrade(t *testing.T, driver, name, old string, store func(*testcluster.Config)) {
	c := pairUp(t, driver, "up"+name[:2], store, func(cfg *testcluster.Config) { cfg.BinDir = old })
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c.netctl(
		"netprofile create -t blue --bandwidth 1gbps --dscp 10 gold",
		"network create -t blue -e vlan -s 10.1.2.0/24 --gateway 10.1.2.254 vnet",
		"policy create -t blue web",
		"policy rule-add -t blue -d in -p 1 -j deny web rest",
		"policy rule-add -t blue -d in -p 10 -l tcp -P 80 -j allow web http",
		"policy rule-add -t blue -d in -p 10 -l tcp -P 5201 -j allow web later",
		"group create -t blue --networkprofile gold -p web vnet web",
		"app-profile create -t blue -g web shop",
		"service create -t blue -s net -l app=lb -p 8000:7000:TCP -p 8000:7000:UDP --affinity off --ip 10.1.1.100 lb",
	)
	c.policy("db", "--label", "role=db", "--default-in", "deny", "--rule", "in allow role=app tcp/80 log")
	c.attachBeyond(c.host("h1"))
	attached := []testcluster.ContainerSpec{
		spec("v1", "h1", "blue/vnet"), spec("v2", "h2", "blue/vnet"), spec("web1", "h1", "blue/vnet/web"), spec("web2", "h2", "blue/vnet/web"),
		spec("lb1", "h1", "blue/net"), spec("lb2", "h2", "blue/net"),
		spec("app", "h1", "blue/net"), spec("db", "h2", "blue/net"),
	}
	for i, a := range attached {
		switch a.Name {
		case "lb1", "lb2":
			attached[i].Labels = map[string]string{"app": "lb"}
		case "app":
			attached[i].Ports = []testcluster.PortMapping{{HostPort: 8080, ContainerPort: 80}}
			fallthrough
		case "db":
			attached[i].Labels = map[string]string{"role": a.Name}
		}
	}
	c.add(attached...)
	for _, a := range c.Containers() { // pairUp's
		if !slices.ContainsFunc(attached, func(s testcluster.ContainerSpec) bool { return s.Name == a.Name }) {
			attached = append(attached, a.ContainerSpec)
		}
	}
	allowed := []string{"c s tcp/80", "c s udp/80", "c s tcp/80 6", "c near tcp/80", "v1 web1 tcp/80", "v1 web2 tcp/80", "web2 web1 tcp/80", "v2 v1 udp/80", "app db tcp/80"}
	forbidden := []string{"s near tcp/80", "near s tcp/80", "near s udp/80", "near s tcp/80 6", "v1 web2 udp/80", "v2 web2 udp/80", "v1 web2 icmp", "app db udp/80", "c db tcp/80"}
	works := func(when string) {
		t.Helper()
		for _, line := range allowed {
			c.wants(line, testcluster.OK)
		}
		c.denied(when, forbidden...)
		c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: 8080}, testcluster.OK, "app")
	}
	export := func() []string { // in one order
		t.Helper()
		out, err := c.Masters.Netctl(ctx, "export")
		if err != nil {
			t.Fatal(err, out)
		}
		documents := strings.Split(strings.TrimSuffix(out, "\n"), "\n---\n")
		slices.Sort(documents)
		return documents
	}
	works("with the old version")
	before := export()
	vip := netip.MustParseAddrPort("10.1.1.100:8000")
	for _, name := range []string{"lb1", "lb2"} {
		stop, err := c.space(name).Reflect(ctx, ":7000")
		must(err)
		t.Cleanup(stop)
	}
	served, err := c.space("c").Dial(ctx, "tcp", vip.String())
	must(err)
	defer served.Close()
	stopDenied := c.keepDenied(forbidden)
	outside, err := c.space("app").StartPing(beyondAddr, 10*time.Millisecond)
	must(err)
	datagrams, err := c.space("c").StartDatagrams(vip, 10*time.Millisecond)
	must(err)
	more := map[string]*testcluster.Pinger{"on a VLAN": c.ping("v1", "v2"), "outside": outside, "by a service": datagrams}
	opened, accepted, err := c.connect(ctx, "web2", "web1", "4") // its answers need that the connection is known
	must(err)
	defer opened.Close()
	defer accepted.Close()

	part := 2 << 20
	slack := 300 * time.Millisecond // as of restarts
	if driver == testcluster.DriverEBPF {
		c.load, part, slack = 5, 8<<20, 50*time.Millisecond
	}
	// during is the traffic while netmaster, and each host in turn, have something done to them.
	during := func(what string, master func() error, host func(*testcluster.Host) error) (time.Duration, map[string]testcluster.PingStats) {
		t.Helper()
		t.Log(what + ":")
		start := time.Now()
		stall, pings := c.traffic(func(ctx context.Context, s *stream) error {
			err := errors.Join(s.more(ctx, part), master(), s.more(ctx, part))
			for _, h := range c.Hosts() {
				err = errors.Join(err, host(h), s.more(ctx, part))
			}
			return err
		})
		for way, p := range more {
			pings[way] = p.Between(start, time.Now().Add(-time.Second))
			t.Logf("ping every 10 ms %s: %s", way, pings[way])
		}
		if err := echo(served, patience); err != nil {
			t.Errorf("%s: the service's connection: %v", what, err)
		}
		return stall, pings
	}
	replaceMaster := func() error {
		return errors.Join(c.Process("netmaster").Stop(30*time.Second), c.Masters.StartMaster(ctx))
	}
	replace := func(h *testcluster.Host) error {
		return errors.Join(h.Agent().Stop(30*time.Second), h.StartAgent(ctx))
	}
	nothing := func() error { return nil }
	quiet, quietPings := during("no restart", nothing, func(*testcluster.Host) error { return nil })
	c.runs(old)
	c.UsePrograms(bin)
	stall, pings := during("upgrade", replaceMaster, replace)
	c.runs(bin)
	if err := carries(accepted, opened); err != nil {
		t.Errorf("the connection from before, of which the server is the first to speak: %v", err)
	}
	if diff := cmp.Diff(before, export()); diff != "" {
		t.Errorf("the objects are not those of before (-old +new):\n%s", diff)
	}
	restart, restartPings := during("restart of the new version", replaceMaster, replace)
	for way, p := range pings {
		if most := 2*max(quietPings[way].Gap, restartPings[way].Gap) + slack; p.Gap > most || p.Sent < 100 {
			t.Errorf("ping %s: %s; without a restart %s, by restarts of one version %s", way, p, quietPings[way], restartPings[way])
		}
	}
	// The kernel verifies the new version's programs meanwhile, on a processor that TCP
	// may need: what is not forwarded shows in pings.
	if most := 2*max(quiet, restart) + time.Second; stall > most {
		t.Errorf("TCP stood still for %v, without restarts for %v, by restarts of one version for %v", stall, quiet, restart)
	}
	for _, p := range more {
		must(p.Stop())
	}
	stopDenied()
	works("after the upgrade")
	c.isWell(len(attached))

	c.UsePrograms(old) // contivk8s comes last
	added := []testcluster.ContainerSpec{spec("n1", "h1", "blue/net/servers"), spec("n2", "h2", "blue/vnet/web")}
	c.add(added[0])
	c.UsePrograms(bin)
	c.add(added[1])
	for _, line := range []string{"c n1 tcp/80", "v1 n2 tcp/80"} {
		c.wants(line, testcluster.OK)
	}
	c.denied("of containers that were added after the upgrade", "s n1 tcp/80", "v1 n2 udp/80")
	for _, s := range attached {
		if err := c.CNICheck(ctx, s); err != nil {
			t.Errorf("CNI CHECK of %s: %v", s.Name, err)
		}
	}
	for _, s := range slices.Concat(attached, added) {
		must(c.DelContainer(ctx, s))
	}
	c.leftNothing()
	c.isWell(0)
}

// flagsInHelp finds lines of a program's help that begin with flags.
var flagsInHelp = regexp.MustCompile(`(?m)^ {1,4}-.*$`)

// refusedFlags are the flags in a program's help that a newer one does not take, sorted.
func refusedFlags(t *testing.T, old, newer string) (refused []string) {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), old, "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err, string(help))
	}
	var flags []string
	for _, line := range flagsInHelp.FindAllString(string(help), -1) {
		flags = append(flags, regexp.MustCompile(`--[a-z0-9-]+`).FindAllString(line, -1)...)
	}
	if len(flags) < 50 {
		t.Fatalf("%s --help names %v only:\n%s", old, flags, help)
	}
	for _, flag := range flags {
		if out, err := exec.CommandContext(t.Context(), newer, flag+"=", "--no-such-flag").CombinedOutput(); err == nil {
			t.Errorf("%s takes --no-such-flag: %s", newer, out)
		} else if strings.Contains(string(out), "unknown flag "+flag+";") {
			refused = append(refused, flag)
		}
	}
	slices.Sort(refused)
	return refused
}

// runs fails where a program of Contiv does not come from a directory.
func (c *cluster) runs(dir string) {
	c.t.Helper()
	for name, p := range c.Processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
		if program := filepath.Base(exe); err != nil || (program == "netmaster" || program == "netplugin") && filepath.Dir(exe) != dir {
			c.t.Fatalf("%s is %s, want it from %s: %v", name, exe, dir, err)
		}
	}
}

// keepDenied asks again and again what has to be denied; stop ends that, and reports what
// was not.
func (c *cluster) keepDenied(lines []string) (stop func()) {
	c.t.Helper()
	pings := map[string]*testcluster.Pinger{}
	for _, family := range []string{"4", "6"} {
		for _, pair := range [][2]string{{"s", "near"}, {"near", "s"}} {
			p, err := c.space(pair[0]).StartPing(c.addr(pair[1], family), 10*time.Millisecond)
			if err != nil {
				c.t.Fatal(err)
			}
			pings[fmt.Sprintf("ping of %s to %s, IPv%s", pair[0], pair[1], family)] = p
		}
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	var asking sync.WaitGroup
	asked := make([]int, len(lines))
	for i, line := range lines {
		q := c.question(line)
		asking.Go(func() {
			for ctx.Err() == nil {
				a := c.space(q.From).Probe(ctx, q.Target, 200*time.Millisecond)
				if asked[i]++; ctx.Err() == nil && a.Verdict != testcluster.Denied {
					c.t.Errorf("%s at %s: %s, want denied", line, time.Now().Format(time.TimeOnly), a)
					return // the others of its kind say no more
				}
			}
		})
	}
	return func() {
		c.t.Helper()
		cancel()
		asking.Wait()
		c.t.Logf("denied questions: %v", asked)
		for what, p := range pings {
			if err := p.Stop(); err != nil {
				c.t.Error(what, err)
			}
			if s := p.Between(time.Time{}, time.Now()); s.Received > 0 || s.Sent < 100 {
				c.t.Errorf("%s, which is denied: %d of %d answered", what, s.Received, s.Sent)
			}
		}
	}
}

// isWell waits until netctl's doctor, status and each host's health find nothing, with so
// many endpoints.
func (c *cluster) isWell(endpoints int) {
	c.t.Helper()
	c.well(ofMachine)
	c.until("the cluster to be well", func(ctx context.Context) error {
		var errs []error
		for _, h := range c.Hosts() {
			text, good, err := h.Healthz(ctx)
			if err == nil && !good {
				err = errors.New(text)
			}
			errs = append(errs, err)
		}
		if out, err := c.Masters.Netctl(ctx, "status"); err != nil {
			errs = append(errs, fmt.Errorf("netctl status: %w: %s", err, out))
		}
		var list []json.RawMessage
		out, err := c.Masters.Netctl(ctx, "endpoint", "ls", "--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &list)
		}
		if err == nil && len(list) != endpoints {
			err = fmt.Errorf("%d endpoints, want %d", len(list), endpoints)
		}
		return errors.Join(append(errs, err)...)
	})
}

// leftNothing waits until no host has a trace of an attachment.
func (c *cluster) leftNothing() {
	c.t.Helper()
	c.until("DEL to leave nothing", func(ctx context.Context) error {
		var errs []error
		for _, h := range c.Hosts() {
			links, err := h.NS.Links()
			ports, err2 := h.Ports(ctx)
			journal, err3 := filepath.Glob(filepath.Join(h.StateDir(), "attach", "*"))
			errs = append(errs, err, err2, err3)
			left := slices.DeleteFunc(slices.Concat(links, ports), func(name string) bool { return !strings.HasPrefix(name, "cv") })
			if left = append(left, journal...); len(left) > 0 {
				errs = append(errs, fmt.Errorf("%s has %v", h.Name, left))
			}
		}
		return errors.Join(errs...)
	})
}
