package installer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// fake is a Debian machine with the packages, whose files are in a directory.
type fake struct {
	t       *testing.T
	dir     string
	user    bool            // not root
	lacks   map[string]bool // services that are not installed
	running map[string]bool
	taken   map[string]bool // "tcp 10.0.0.1:9999"
	foreign map[string]bool // addresses that are not the machine's
	clock   time.Duration
	away    bool // netmasters do not answer
	ran     []string
}

func (f *fake) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fake) root() bool { return !f.user }

func (f *fake) run(_ context.Context, name string, args ...string) (string, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	fail := func(is bool) (string, error) {
		if is {
			return "", errors.New("exit status 1")
		}
		return "", nil
	}
	switch last := args[len(args)-1]; {
	case strings.HasPrefix(line, "systemctl is-active"):
		return fail(!f.running[last])
	case strings.HasPrefix(line, "systemctl cat"):
		return fail(f.lacks[strings.TrimSuffix(last, ".service")])
	case name == "timedatectl":
		return "yes", nil
	case strings.HasPrefix(line, "systemctl enable"):
		token, _ := os.ReadFile(f.path("/etc/contiv/" + last + ".env")) // there may be none
		f.ran = append(f.ran, line+" "+strings.TrimSpace(string(token)))
		f.running[last] = true
		return "", nil
	}
	return "", fmt.Errorf("unexpected: %s", line)
}

func (f *fake) free(_ context.Context, network, address string) error {
	host, _, _ := strings.Cut(address, ":")
	if f.foreign[host] {
		return syscall.EADDRNOTAVAIL
	}
	if f.taken[network+" "+address] {
		return syscall.EADDRINUSE
	}
	return nil
}

func (f *fake) ahead(context.Context, string, jointoken.Fingerprint) (time.Duration, error) {
	if f.away {
		return 0, errors.New("connection refused")
	}
	return f.clock, nil
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, dir: t.TempDir(), lacks: map[string]bool{}, running: map[string]bool{}, taken: map[string]bool{}, foreign: map[string]bool{}}
	f.write("/run/systemd/system/.keep", "")
	f.kernel("6.1.0-40-amd64")
	return f
}

func (f *fake) write(name, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) kernel(release string) {
	f.t.Helper()
	f.write("/proc/sys/kernel/osrelease", release+"\n")
}

func (f *fake) read(name string) string {
	f.t.Helper()
	data, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

var (
	first = Plan{Host: "h1", Address: netip.MustParseAddr("10.0.0.1")}
	next  = Plan{Host: "h2", Address: netip.MustParseAddr("10.0.0.2"), Join: []string{"10.0.0.1:9005"}, Token: "contiv-join-x"}
)

func TestCheckFindsWhatKeepsAMachineFromBeingAHost(t *testing.T) {
	for name, tt := range map[string]struct {
		plan    Plan
		machine func(*fake)
		want    []string // "check: text" of errors and warnings
	}{
		"a machine that can be the first one": {plan: first},
		"a machine that can be one more host": {plan: next},
		"another user":                        {plan: first, machine: func(f *fake) { f.user = true }, want: []string{"user: you are not root"}},
		"no packages": {plan: first, machine: func(f *fake) { f.lacks = map[string]bool{"netmaster": true, "netplugin": true} }, want: []string{
			"packages: the service netmaster is not installed", "packages: the service netplugin is not installed",
		}},
		"an old kernel":                   {plan: first, machine: func(f *fake) { f.kernel("5.10.0-28-amd64") }, want: []string{"kernel: 5.10.0-28-amd64 is older than 5.17, and Open vSwitch is not installed"}},
		"an old kernel with Open vSwitch": {plan: first, machine: func(f *fake) { f.kernel("5.10.0"); f.write("/usr/sbin/ovs-vswitchd", "") }},
		"another machine's address":       {plan: first, machine: func(f *fake) { f.foreign["10.0.0.1"] = true }, want: []string{"address: 10.0.0.1 is no address of this machine"}},
		"a port that is taken":            {plan: first, machine: func(f *fake) { f.taken["tcp 10.0.0.1:9999"] = true }, want: []string{"ports: another program listens on port 9999/tcp"}},
		"VXLAN of another network":        {plan: next, machine: func(f *fake) { f.taken["udp 10.0.0.2:4789"] = true }, want: []string{"ports: port 4789/udp is used: another network has VXLAN on this machine"}},
		"a clock that is late":            {plan: next, machine: func(f *fake) { f.clock = -time.Hour }, want: []string{"time: this clock and the one of 10.0.0.1:9005 differ by 1h0m0s"}},
		"netmasters behind a firewall":    {plan: next, machine: func(f *fake) { f.away = true }, want: []string{"netmaster: 10.0.0.1:9005 does not answer: connection refused"}},
		"a firewall":                      {plan: next, machine: func(f *fake) { f.running["ufw"] = true }, want: []string{"firewall: ufw runs"}},
		"another CNI plugin":              {plan: next, machine: func(f *fake) { f.write("/etc/cni/net.d/10-flannel.conflist", "{}") }, want: []string{"cni: /etc/cni/net.d has 10-flannel.conflist"}},
		"settings of another cluster": {plan: next, machine: func(f *fake) {
			f.write("/etc/contiv/netplugin.yaml", "join: [10.0.0.9:9005]\nhost: h2\n")
		}, want: []string{
			"settings: /etc/contiv/netplugin.yaml has join: 10.0.0.9:9005 instead of 10.0.0.1:9005",
		}},
		"a host that runs": {plan: next, machine: func(f *fake) {
			f.running["netplugin"] = true
			f.write("/etc/contiv/netplugin.yaml", "host: h2\n")
		}, want: []string{
			"settings: netplugin runs already, and /etc/contiv/netplugin.yaml lacks ctrl-ip, ip-forward, join",
		}},
		"the state of a cluster": {plan: first, machine: func(f *fake) { f.write(DataDir+"/member/snap/db", "") }, want: []string{"settings: /var/lib/contiv/etcd has the state of a cluster"}},
		"no YAML":                {plan: next, machine: func(f *fake) { f.write("/etc/contiv/netplugin.yaml", "host h2\n") }, want: []string{"settings: /etc/contiv/netplugin.yaml: yaml: "}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			if tt.machine != nil {
				tt.machine(f)
			}
			p := tt.plan
			found := (&Machine{f}).Check(t.Context(), &p)
			var got []string
			refused := false
			for _, x := range found {
				if x.Severity != OK {
					got = append(got, x.Check+": "+x.Text)
					refused = refused || x.Severity == Error
					if x.Remedy == "" {
						t.Errorf("%s: nothing says what to do", x.Text)
					}
				}
			}
			if len(got) != len(tt.want) {
				t.Fatalf("found %q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tt.want[i]) {
					t.Errorf("found %q, want %q", got[i], tt.want[i])
				}
			}
			if Refused(found) != refused {
				t.Errorf("refused: %v, want %v", !refused, refused)
			}
		})
	}
}

// TestInstallWritesSettingsOnceAndKeepsNoToken: what a user wrote stays, and a second run
// changes nothing.
func TestInstallWritesSettingsOnceAndKeepsNoToken(t *testing.T) {
	f := newFake(t)
	f.write("/run/docker.sock", "")
	f.write("/etc/contiv/netplugin.yaml", "# mine\nlog-level: debug")
	f.write("/etc/contiv/netplugin.env", "HTTPS_PROXY=http://proxy\n")
	m := &Machine{f}
	for range 2 {
		if err := m.StartNetplugin(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
	want := "# mine\nlog-level: debug\nhost: h2\nctrl-ip: 10.0.0.2\nip-forward: true\njoin: 10.0.0.1:9005\nmode: docker\n"
	if d := cmp.Diff(want, f.read("/etc/contiv/netplugin.yaml")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("HTTPS_PROXY=http://proxy\n", f.read("/etc/contiv/netplugin.env")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"systemctl enable --now netplugin HTTPS_PROXY=http://proxy\n" + tokenVariable + next.Token}, f.ran); d != "" {
		t.Error(d)
	}
}

func TestSettingsOfIPv6AreReadAsTheyWereWritten(t *testing.T) {
	f := newFake(t)
	m, p := &Machine{f}, Plan{Host: "h1", Address: netip.MustParseAddr("fd00::1")}
	if err := m.StartNetmaster(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	has, err := m.settings(p.netmaster())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"secure": "true", "internal-address": "[fd00::1]:9999"}, has); d != "" {
		t.Error(d)
	}
}

func TestTokensOfHostsAreAPlan(t *testing.T) {
	token := jointoken.New([]string{"10.0.0.1:9005", "10.0.0.3:9005"}, jointoken.Fingerprint{1})
	if _, err := Joining(token.Text()); err == nil || !strings.Contains(err.Error(), "the token is for a netmaster") {
		t.Errorf("a netmaster's token: %v", err)
	}
	token.Host = "h2"
	text := token.Text()
	if _, err := Joining(text[:40]); err == nil || !strings.Contains(err.Error(), "invalid or incomplete") {
		t.Errorf("a part of a token: %v", err)
	}
	got, err := Joining(text + "\n")
	want := Plan{Host: "h2", Join: token.Addresses, Token: text, authority: token.Authority}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Plan{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}
