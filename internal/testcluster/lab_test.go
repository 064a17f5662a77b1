package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// need skips a test that the machine cannot run, or fails it where everything
// must run.
func need(t *testing.T) {
	t.Helper()
	if m := (Config{Driver: DriverMixed}).Missing(); len(m) > 0 {
		if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Fatal(strings.Join(m, "; "))
		}
		t.Skip(strings.Join(m, "; "))
	}
}

// bare builds a lab's network and switches, without netmaster and netplugin.
func bare(t *testing.T, name string, hosts int) *Lab {
	t.Helper()
	need(t)
	l, err := Up(t.Context(), Config{Name: name, Hosts: hosts, Bare: true, Driver: DriverOVS, Progress: func(s string, d time.Duration) {
		t.Logf("%s: %v", s, d.Round(time.Millisecond))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestUnderlayCarriesTunnelsAndVLANs checks that what a data plane needs of the lab works: VXLAN
// between hosts, tagged frames over the trunk, TCP, UDP and ICMP through both and
// through the control network, which does without the switches, and that Down
// leaves nothing.
func TestUnderlayCarriesTunnelsAndVLANs(t *testing.T) {
	l := bare(t, "blab", 2)
	for i, h := range l.Hosts() {
		peer := l.Hosts()[1-i]
		br := []string{
			"add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=" + l.Config().Datapath,
			"--", "add-port", "br0", "vx", "--", "set", "interface", "vx", "type=vxlan", "options:remote_ip=" + peer.Address.String(),
			"--", "add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=" + l.Config().Datapath, "--", "add-port", "br1", "eth1",
			"--", "add-port", "br1", "tagged", "tag=7", "--", "set", "interface", "tagged", "type=internal",
		}
		if _, err := h.Switch.Vsctl(t.Context(), br...); err != nil {
			t.Fatal(err)
		}
		err := h.NS.Do(func() error {
			return errors.Join(addAddress("br0", netip.MustParsePrefix(fmt.Sprintf("10.1.1.%d/24", i+1))),
				addAddress("tagged", netip.MustParsePrefix(fmt.Sprintf("10.1.2.%d/24", i+1))))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	l.spaces["h2"] = l.Hosts()[1].NS
	if _, err := l.Serve("h2", "tcp/80", "udp/53"); err != nil {
		t.Fatal(err)
	}
	from := l.Hosts()[0].NS
	for _, address := range []string{"10.250.0.12", "10.251.0.12", "10.1.1.2", "10.1.2.2"} {
		for _, tg := range []Target{
			{"icmp", netip.MustParseAddr(address), 0},
			{"tcp", netip.MustParseAddr(address), 80},
			{"udp", netip.MustParseAddr(address), 53},
			{"tcp", netip.MustParseAddr(address), 81},
			{"udp", netip.MustParseAddr(address), 54},
		} {
			want := OK
			if tg.Port == 81 || tg.Port == 54 {
				want = Refused
			}
			a := from.Probe(t.Context(), tg, 3*time.Second)
			if a.Verdict != want || a.Err != nil {
				t.Errorf("%s: %s, want %s", tg, a, want)
			}
			if want == OK && tg.Port != 0 && a.From != "h2" {
				t.Errorf("%s: answered by %q, want h2", tg, a.From)
			}
		}
	}
	if err := l.Hosts()[1].Switch.Vswitchd().Pause(); err != nil {
		t.Fatal(err)
	}
	if a := from.Probe(t.Context(), Target{"tcp", l.Hosts()[1].Control, 80}, 3*time.Second); a.Verdict != OK {
		t.Errorf("the control network with a switch paused: %s, want ok", a)
	}
	if err := l.Hosts()[1].Switch.Vswitchd().Resume(); err != nil {
		t.Fatal(err)
	}
	if lines := learned(t, l); len(lines) > 0 {
		t.Errorf("the trunk has learned addresses: %q", lines)
	}
	if a := from.Probe(t.Context(), Target{"tcp", netip.MustParseAddr("10.1.1.9"), 80}, 100*time.Millisecond); a.Verdict != Denied {
		t.Errorf("an address nobody has: %s, want denied", a)
	}
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	if left, err := namespacesWith(prefix("blab")); err != nil || len(left) > 0 {
		t.Errorf("namespaces left: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(BaseDir, "blab")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory left: %v", err)
	}
}

// learned lists what the trunk remembers of who is where. It must be nothing:
// tenants with equal subnets have equal MAC addresses, in different VLANs.
func learned(t *testing.T, l *Lab) []string {
	t.Helper()
	out, err := l.Fabric.Command(t.Context(), "bridge", "fdb", "show", "br", "trunk").CombinedOutput()
	if err != nil {
		t.Fatalf("list what the trunk knows: %v: %s", err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "permanent") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestEtcdKeepsItsDataOverAKill checks that etcd starts, keeps its data over a kill, and that a
// daemon which cannot start is reported with the end of its log.
func TestEtcdKeepsItsDataOverAKill(t *testing.T) {
	l := bare(t, "blabetcd", 0)
	if err := l.Store.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", l.Process("etcd").PID))
	if err != nil || string(slack) != "2000000\n" {
		t.Errorf("its timers may be %q ns late, %v; want 2 ms, as packaging/systemd says", slack, err)
	}
	c, err := l.Store.Etcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Process("etcd").Kill(); err != nil {
		t.Fatal(err)
	}
	if err := l.Store.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), "a"); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" {
		t.Errorf("after a kill: %v, %v, want 1", got, err)
	}
	p, err := l.processes.start(l.Master, "broken", l.Config().Dir, nil, "sh", "-c", "echo no such disk >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = p.ready(t.Context(), "broken", func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "no such disk") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a daemon that ends: %v, want its exit status and the end of its log", err)
	}
}

// TestCrashedLabIsRemovedByName checks that what a killed builder left goes away by name
// alone: its processes, whose state was never written, and its namespaces.
func TestCrashedLabIsRemovedByName(t *testing.T) {
	need(t)
	ns, err := newNamespace(prefix("blabcrash") + "h1")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.close()
	c := ns.Command(t.Context(), "sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	names, err := List()
	if err != nil || !strings.Contains(strings.Join(names, " "), "blabcrash") {
		t.Fatalf("List() = %v, %v, want bcrash among them", names, err)
	}
	if err := Remove("blabcrash", ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process inside: %v, want killed", err)
	}
	if left, err := namespacesWith(prefix("blabcrash")); err != nil || len(left) > 0 {
		t.Errorf("namespaces left: %v, %v", left, err)
	}
	if err := Remove("blabcrash", ""); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
	if err := Remove("blab-crash", ""); err == nil {
		t.Error("a name with a hyphen was accepted")
	}
}

// TestRunningLabIsNotRebuilt checks that a lab is neither built twice nor built over
// one that another process still runs.
func TestRunningLabIsNotRebuilt(t *testing.T) {
	l := bare(t, "blabtwice", 0)
	l.st.Owner = &Process{PID: os.Getppid()}
	l.st.Owner.Start, _ = startTime(os.Getppid())
	if err := l.save(); err != nil {
		t.Fatal(err)
	}
	_, err := Up(t.Context(), Config{Name: "blabtwice", Bare: true})
	if err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second lab of the name: %v, want an error that says so", err)
	}
	for _, cfg := range []Config{{Name: "b-twice"}, {Name: ""}, {Name: "toolongforalab"}, {Name: "b", Hosts: 201}, {Name: "b", Hosts: -1}} {
		if _, err := Up(t.Context(), cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	if _, err := Open("bnone"); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("opening what is not there: %v", err)
	}
}
