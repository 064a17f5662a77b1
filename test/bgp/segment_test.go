//go:build integration

package bgp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// deadline bounds what a test waits for, on a machine under any load.
const deadline = 90 * time.Second

const (
	hostAS, routersAS = 65002, 65100
	hostAddr          = "10.0.0.1"
	frrAddr           = "10.0.0.2"
	birdAddr          = "10.0.0.3"
	frrPassword       = "secret"
)

func TestMain(m *testing.M) {
	if os.Getenv(speakerEnv) != "" {
		os.Exit(speak())
	}
	// One goroutine of the library may outlive a neighbor: see docs/design/bgp.md.
	os.Exit(testenv.Run(m, nil, goleak.IgnoreTopFunction("github.com/eapache/channels.(*InfiniteChannel).infiniteBuffer")))
}

// segment is a switch with the host (this process's namespace), FRR and BIRD on it.
var segment = sync.OnceValue(func() error {
	for _, dir := range []string{"/run/netns", "/run/frr"} { // in the tests' own mount namespace
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	script := `
netns add sw
netns add frr
netns add bird
-n sw link add name bridge0 type bridge
-n sw link set bridge0 up
link add lan0 type veth peer name host0 netns sw
-n frr link add lan0 type veth peer name frr0 netns sw
-n bird link add lan0 type veth peer name bird0 netns sw
-n sw link set host0 master bridge0 up
-n sw link set frr0 master bridge0 up
-n sw link set bird0 master bridge0 up
-n frr link set lo up
-n bird link set lo up
addr add 10.0.0.1/24 dev lan0
addr add fd00::1/64 dev lan0 nodad
-n frr addr add 10.0.0.2/24 dev lan0
-n frr addr add fd00::2/64 dev lan0 nodad
-n bird addr add 10.0.0.3/24 dev lan0
-n bird addr add fd00::3/64 dev lan0 nodad
link set lan0 up
-n frr link set lan0 up
-n bird link set lan0 up`
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		if out, err := exec.CommandContext(context.Background(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
})

// need skips where there are no routers or no namespaces.
func need(t *testing.T) {
	t.Helper()
	testenv.Need(t)
	for _, f := range []string{"/usr/lib/frr/bgpd", "/usr/sbin/bird"} {
		if _, err := os.Stat(f); err != nil {
			if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	if err := segment(); err != nil {
		t.Fatal(err)
	}
}

// run runs a program and returns what it says.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput() // in cleanups too
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// until asks until ok says yes; it says what it saw last otherwise.
func until(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for {
		yes, last := ok()
		if yes {
			return
		}
		if waiting.Pause(ctx, 50*time.Millisecond) != nil {
			t.Fatalf("wait for %s: last %s", what, last)
		}
	}
}

// daemon runs a router's program in a namespace until the test ends.
func daemon(t *testing.T, ns string, argv ...string) {
	t.Helper()
	var log bytes.Buffer
	c := exec.CommandContext(context.Background(), "ip", append([]string{"netns", "exec", ns}, argv...)...)
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // killed
		if t.Failed() {
			t.Logf("%s: %s", argv[0], log.String())
		}
	})
}

const frrConfig = `frr defaults traditional
log stdout warnings
router bgp 65100
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.0.0.1 remote-as 65002
 neighbor 10.0.0.1 password secret
 neighbor 10.0.0.1 timers 60 180
 neighbor 10.0.0.1 timers connect 1
 address-family ipv4 unicast
  network 10.50.0.0/16
  network 10.99.1.0/24
 exit-address-family
 address-family ipv6 unicast
  neighbor 10.0.0.1 activate
  network fd50::/32
 exit-address-family
`

// frr starts FRR on the segment.
func frr(t *testing.T) {
	t.Helper()
	frrIn(t, "frr", frrConfig, hostAddr)
}

// frrIn starts zebra, bgpd and bfdd in a namespace, for a neighbor.
func frrIn(t *testing.T, ns, config, neighbor string) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "frr.conf")
	if err := os.WriteFile(conf, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	u, err := user.Lookup("frr")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid) // they are numbers
	gid, _ := strconv.Atoi(u.Gid)
	for dir := conf; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown("/run/frr", uid, gid); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob("/run/frr/*") // of an earlier test's
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
	daemon(t, ns, "/usr/lib/frr/zebra", "-f", "/dev/null", "-A", "127.0.0.1", "-P", "0")
	until(t, "zebra", func() (bool, string) {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", "/run/frr/zserv.api")
		if err != nil {
			return false, err.Error()
		}
		return c.Close() == nil, ""
	})
	daemon(t, ns, "/usr/lib/frr/bfdd", "-f", "/dev/null", "-A", "127.0.0.1", "-P", "0")
	daemon(t, ns, "/usr/lib/frr/bgpd", "-f", conf, "-A", "127.0.0.1", "-P", "0")
	until(t, "bgpd", func() (bool, string) {
		out, err := exec.CommandContext(t.Context(), "vtysh", "-d", "bgpd", "-c", "show bgp summary").CombinedOutput()
		return err == nil && strings.Contains(string(out), neighbor), string(out)
	})
}

// vtysh gives FRR commands.
func vtysh(t *testing.T, commands ...string) string {
	t.Helper()
	var args []string
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	return run(t, "vtysh", args...)
}

const birdConfig = `router id 10.0.0.3;
protocol device { }
protocol kernel { ipv4 { export all; }; }
protocol kernel { ipv6 { export all; }; }
protocol static { ipv4; route 10.50.0.0/16 blackhole; route 10.60.0.0/16 blackhole; route 10.99.0.0/16 blackhole; }
protocol static { ipv6; route fd50::/32 blackhole; }
protocol bgp host {
  local 10.0.0.3 as 65100;
  neighbor 10.0.0.1 as 65002;
  hold time 180;
  connect retry time 1;
  error wait time 1, 2;
  ipv4 { import all; export where source = RTS_STATIC; };
  ipv6 { import all; export where source = RTS_STATIC; next hop address fd00::3; };
}
`

func bird(t *testing.T) { t.Helper(); birdIn(t, "bird", birdConfig) }

// birdIn starts BIRD in a namespace; what it returns gives it another configuration.
func birdIn(t *testing.T, ns, config string) (configure func(config string)) {
	t.Helper()
	dir := t.TempDir()
	conf, ctl := filepath.Join(dir, "bird.conf"), filepath.Join(dir, "ctl")
	write := func(config string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(config)
	daemon(t, ns, "/usr/sbin/bird", "-f", "-c", conf, "-s", ctl)
	return func(config string) {
		t.Helper()
		write(config)
		run(t, "birdc", "-s", ctl, "configure")
	}
}

// routes follows the routes that a router has in its kernel.
type routes struct {
	changes waiting.Changes
	mu      sync.Mutex
	has     map[string]time.Time // since when
	gone    map[string]time.Time // when it went last
}

func follow(t *testing.T, ns string) *routes {
	t.Helper()
	r := &routes{has: map[string]time.Time{}, gone: map[string]time.Time{}}
	c := exec.CommandContext(context.Background(), "ip", "-n", ns, "monitor", "route")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { r.read(out) })
	t.Cleanup(func() {
		_ = c.Process.Kill() // it is there to be ended
		done.Wait()
		_ = c.Wait() // killed
	})
	return r
}

func (r *routes) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		at, f := time.Now(), strings.Fields(lines.Text())
		deleted := len(f) > 0 && f[0] == "Deleted"
		if deleted {
			f = f[1:]
		}
		if len(f) == 0 {
			continue
		}
		r.mu.Lock()
		if _, there := r.has[f[0]]; deleted {
			delete(r.has, f[0])
			r.gone[f[0]] = at
		} else if !there {
			r.has[f[0]] = at
		}
		r.mu.Unlock()
		r.changes.Notify()
	}
}

// wait waits until a prefix is there, or is not, and says since when.
func (r *routes) wait(t *testing.T, prefix string, there bool) (since time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	err := r.changes.Until(ctx, func() (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		at, has := r.has[prefix]
		if since = at; !there {
			since = r.gone[prefix]
		}
		return has == there, nil
	})
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.Fatalf("route %s (to be there: %t): %v; there are %v", prefix, there, err, r.has)
	}
	return since
}

// went says when a prefix went last; zero = never.
func (r *routes) went(prefix string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone[prefix]
}
