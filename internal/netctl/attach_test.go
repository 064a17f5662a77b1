package netctl

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// agentSocket is a netplugin that attaches nothing and remembers what it was asked.
// The real one is asked in test/slice.
type agentSocket struct {
	path     string
	attached []attach.Request
	detached []attach.DetachRequest
	fail     error
}

func newAgentSocket(t *testing.T) *agentSocket {
	t.Helper()
	dir, err := os.MkdirTemp("", "netctl-") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	a := &agentSocket{path: filepath.Join(dir, "s")}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", a.path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, r *http.Request, in, out any) bool {
		err := json.NewDecoder(r.Body).Decode(in)
		if err == nil {
			err = a.fail
		}
		if err != nil {
			f, status := attach.NewFailure(err)
			w.WriteHeader(status)
			out = f
		}
		if e := json.NewEncoder(w).Encode(out); e != nil {
			t.Error(e)
		}
		return err == nil
	}
	mux.HandleFunc("POST "+attach.PathAttach, func(w http.ResponseWriter, r *http.Request) {
		var in attach.Request
		if answer(w, r, &in, attach.Result{
			Endpoint: "blue:net:e", IfName: "eth0", NameServer: netip.MustParseAddr("172.19.0.1"), Search: "blue",
			Addresses: []attach.Address{{Prefix: netip.MustParsePrefix("10.1.1.1/24")}, {Prefix: netip.MustParsePrefix("fd00::1/64")}},
		}) {
			a.attached = append(a.attached, in)
		}
	})
	mux.HandleFunc("POST "+attach.PathDetach, func(w http.ResponseWriter, r *http.Request) {
		var in attach.DetachRequest
		if answer(w, r, &in, struct{}{}) {
			a.detached = append(a.detached, in)
		}
	})
	s := &http.Server{Handler: mux} //nolint:gosec // a test's
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends when it is closed
	}()
	t.Cleanup(func() {
		_ = s.Close() // no client is left
		<-done
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return a
}

// Every flag of attach and detach is in what netplugin is asked, and what it answers is
// printed.
func TestAttachSendsEveryFlag(t *testing.T) {
	a := newAgentSocket(t)
	env := map[string]string{"CONTIV_CNI_SOCKET": a.path}
	self := os.Getpid()
	for _, tc := range []struct {
		line string
		want attach.Request
		out  string
	}{
		{
			"attach --netns /run/netns/web -t blue -n net -g web --name web1 --label app=shop --label a=b=c,d --ip 10.1.1.7 --ip fd00::7 --ifname net0",
			attach.Request{
				Key: attach.Key{Container: "netns-web", IfName: "net0"}, Netns: "/run/netns/web", Tenant: "blue", Network: "net", Group: "web", Name: "web1",
				Labels: map[string]string{"app": "shop", "a": "b=c,d"}, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.7"), netip.MustParseAddr("fd00::7")},
			},
			"Attached web1: endpoint blue:net:e, eth0 with 10.1.1.1/24 and fd00::1/64\nNames are known at 172.19.0.1, search domain blue: for its resolv.conf\n",
		},
		{
			fmt.Sprintf("attach --pid %d --quiet", self),
			attach.Request{Key: attach.PIDKey(self, "eth0"), Netns: fmt.Sprintf("/proc/%d/ns/net", self), Tenant: "default", Name: fmt.Sprintf("pid-%d", self)},
			"10.1.1.1/24\nfd00::1/64\n",
		},
	} {
		a.attached = nil
		got := netctlEnv(t, env, strings.Fields(tc.line)...)
		if diff := cmp.Diff(tc.out, got.out); diff != "" || got.code != 0 {
			t.Errorf("%s: exit code %d %s (-want +got):\n%s", tc.line, got.code, got.errOut, diff)
		}
		tc.want.Source = attach.SourceProcess
		if diff := cmp.Diff([]attach.Request{tc.want}, a.attached, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s asks (-want +got):\n%s", tc.line, diff)
		}
	}
	var res attach.Result
	got := netctlEnv(t, nil, "attach", "--netns", "/run/netns/web", "--json", "--socket", a.path)
	if err := json.Unmarshal([]byte(got.out), &res); err != nil || res.Endpoint != "blue:net:e" {
		t.Errorf("as JSON: %v %+v", err, got)
	}
	for line, want := range map[string]attach.Key{
		"detach --netns /run/netns/web":          {Container: "netns-web", IfName: "eth0"},
		"detach --pid 4711 --ifname net0 --json": attach.PIDKey(4711, "net0"),
	} {
		a.detached = nil
		if got := netctlEnv(t, env, strings.Fields(line)...); got.code != 0 || len(a.detached) != 1 || a.detached[0].Key != want {
			t.Errorf("%s: %+v, and asked for %v", line, got, a.detached)
		}
	}
	// By whichever kind netplugin refuses.
	for code, kind := range map[int]error{
		ExitFailure: model.ErrInvalid, ExitNotFound: model.ErrNotFound, ExitConflict: model.ErrExhausted, ExitUnavailable: model.ErrUnavailable,
	} {
		a.fail = model.Errorf(kind, "no, because")
		for _, line := range []string{"attach --netns /run/netns/web", "detach --netns /run/netns/web"} {
			if got := netctlEnv(t, env, strings.Fields(line)...); got.code != code || got.out != "" || got.errOut != "netctl: no, because\n" {
				t.Errorf("%s refused by %v: %+v", line, kind, got)
			}
		}
	}
}

// Without netplugin attach fails and says so; detach leaves its wish where netplugin
// looks for it.
func TestDetachWithoutAgentIsSpooled(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		line string
		code int
		says string
	}{
		{"attach", ExitUsage, "which process?"},
		{"attach --netns /run/netns/web --pid 1", ExitUsage, "both given"},
		{"attach --pid -4", ExitUsage, "must be the number of a process"},
		{"attach --pid 4194999", ExitUsage, "there is no such process"},
		{"attach --netns /n --label app", ExitUsage, "must be KEY=VALUE"},
		{"attach --netns /n --label a=b --label a=c", ExitUsage, "each key once"},
		{"attach --netns /n --ip ten", ExitUsage, "must be an IPv4 or IPv6 address"},
		{"attach --netns /n --ifname=", ExitUsage, "flag --ifname needs a value"},
		{"attach --netns /n", ExitUnavailable, "start netplugin on this host"},
		{"detach", ExitUsage, "which process?"},
		{"detach --netns /run/netns/web", ExitOK, "netplugin will do it when it runs"},
		{"detach --netns /run/netns/web --state-dir /dev/null", ExitUnavailable, "nor can it be left"},
	} {
		env := map[string]string{"CONTIV_CNI_SOCKET": filepath.Join(dir, "none"), "CONTIV_CNI_STATE_DIR": dir}
		got := netctlEnv(t, env, strings.Fields(tc.line)...)
		if got.code != tc.code || !strings.Contains(got.errOut, tc.says) {
			t.Errorf("netctl %s: %+v, want exit code %d and %q", tc.line, got, tc.code, tc.says)
		}
	}
	want := []attach.DetachRequest{{Key: attach.Key{Container: "netns-web", IfName: "eth0"}, Netns: "/run/netns/web"}}
	list, err := attach.Spool{Dir: filepath.Join(dir, attach.SpoolDir)}.List()
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("spooled: %v (-want +got):\n%s", err, diff)
	}
}
