package netctl

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// alone is a cluster of one netmaster.
type alone struct{}

func (alone) Info(context.Context) (api.Info, error) { return api.Info{CurrentState: "leader"}, nil }

func (alone) Masters(context.Context) ([]api.Master, error) {
	return []api.Master{{Address: "10.0.0.1:9999", Role: "leader"}}, nil
}

func (alone) Stores(context.Context) []api.StoreServer { return []api.StoreServer{{Address: "memory"}} }

func (alone) Health(context.Context) api.Health { return api.Health{Ready: true} }

// startNetmaster serves the real REST interface on a store in memory and
// returns its URL.
func startNetmaster(t *testing.T) string {
	t.Helper()
	return startNetmasterOn(t, memory.New())
}

func startNetmasterOn(t *testing.T, st *memory.Store) string {
	t.Helper()
	return startNetmasterWith(t, st, nil)
}

func startNetmasterWith(t *testing.T, st *memory.Store, accepts func(token string) bool) string {
	t.Helper()
	if accepts == nil {
		return startNetmasterBehind(t, st, nil)
	}
	return startNetmasterBehind(t, st, access.SharedTokens(accepts))
}

// startNetmasterBehind is startNetmasterOn, where clients have to show a token; nil = they do not.
func startNetmasterBehind(t *testing.T, st *memory.Store, bearer access.Bearer) string {
	t.Helper()
	var authenticate func(*http.Request) (access.Identity, error)
	if bearer != nil {
		authenticate = func(r *http.Request) (access.Identity, error) { return access.Identify(r, []access.Bearer{bearer}) }
	}
	ctrl := control.New(st, control.Options{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running errgroup.Group
	running.Go(func() error { return ctrl.Run(ctx) })
	s := httptest.NewUnstartedServer(nil)
	handler, err := apiserver.New(configOf(ctrl, s.Listener.Addr().String(), authenticate))
	if err != nil {
		t.Fatal(err)
	}
	s.Config.Handler = handler
	s.Start()
	t.Cleanup(func() {
		s.Close()
		cancel()
		if err := running.Wait(); err != nil {
			t.Errorf("run control: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return s.URL
}

func configOf(ctrl *control.Controller, at string, authenticate func(*http.Request) (access.Identity, error)) apiserver.Config {
	return apiserver.Config{
		Control: ctrl, Cluster: alone{}, Mode: "none", Log: slog.New(slog.DiscardHandler),
		Version: api.Version{Version: "2.1.0"}, Address: at, Authenticate: authenticate,
	}
}

// beNetmaster serves the REST interface at --external-address until it is ended, as the program
// netmaster does that netctl starts.
func beNetmaster(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	at := args[slices.Index(args, "--external-address")+1]
	ctrl := control.New(memory.New(), control.Options{})
	handler, err := apiserver.New(configOf(ctrl, at, nil))
	if err != nil {
		return ExitFailure
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return ExitFailure
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // until the process ends
	if ctrl.Run(ctx) != nil {
		return ExitFailure
	}
	return ExitOK
}

// Against the real netmaster every kind of outcome has its exit code, a refusal
// changes nothing, and the message names what was wrong.
func TestEachOutcomeHasItsExitCode(t *testing.T) {
	url := startNetmaster(t)
	for _, tc := range []struct {
		line string
		code int
		has  string // in the output or the message
	}{
		{"tenant create blue", ExitOK, "Created tenant blue"},
		{"tenant create blue", ExitOK, "Unchanged: tenant blue"},
		{"tenant create a_b", ExitFailure, "a_b"},
		{"network create -t blue -s 10.1.1.0/24 -g 10.1.1.254 n1", ExitOK, "Created network blue:n1"},
		{"network create -t blue -s 10.1.1.0/25 n2", ExitConflict, "10.1.1.0/25"},
		{"network create -t blue -s 10.9.0.0/16 -g 10.8.0.1 n2", ExitFailure, "10.8.0.1"},
		{"network create -t blue -s 10.7.0.0/16 n1", ExitConflict, "n1"},
		{"network create -t nosuch -s 10.9.0.0/16 n2", ExitNotFound, "nosuch"},
		{"network create -t blue -subnetv6 2001:db8::/64 six", ExitOK, "Created network blue:six"},
		{"network ls -t blue -q", ExitOK, "n1\nsix\n"},
		{"policy create -t blue p1", ExitOK, "Created policy blue:p1"},
		{"group create -t blue n1 g1 -p p1", ExitOK, "Created group blue:g1"},
		{"group create -t blue n1 g2 -p nosuch", ExitNotFound, "nosuch"},
		{"group ls -t blue -q", ExitOK, "g1\n"},
		{"policy rule-add -t blue p1 r1 -g g1 -l tcp -P 80", ExitOK, "Created rule blue:p1:r1"},
		{"policy rule-add -t blue p1 r2 -g nosuch", ExitNotFound, "nosuch"},
		{"policy rule-add -t blue p1 r2 -P 80", ExitFailure, "port"},
		{"policy rule-add -t blue p1 r2 -p 101", ExitFailure, "101"},
		{"policy rule-add -t blue p1 r1 -j deny", ExitConflict, "r1"},
		{"policy rule-ls -t blue p1 -q", ExitOK, "r1\n"},
		{"policy rm -t blue p1", ExitConflict, "p1"},
		{"group rm -t blue g1", ExitConflict, "g1"},
		{"network rm -t blue n1", ExitConflict, "n1"},
		{"tenant rm blue", ExitConflict, "blue"},
		{"group inspect -t blue g1", ExitOK, `"groupName": "g1"`},
		{"group inspect -t blue nosuch", ExitNotFound, "nosuch"},
		{"endpoint inspect nosuch", ExitNotFound, "nosuch"},
		{"tenant inspect blue", ExitOK, `"totalNetworks": 2`},
		{"global set -v 5-1", ExitFailure, "5-1"},
		{"global set -s 172.30.0.0/16", ExitConflict, "172.30.0.0/16"},
		{"global set -v 100-200", ExitOK, "Set vlan-range 100-200"},
		{"policy rule-rm -t blue p1 r1", ExitOK, "Deleted rule blue:p1:r1"},
		{"group rm -t blue g1", ExitOK, "Deleted group blue:g1"},
		{"policy rm -t blue p1", ExitOK, "Deleted policy blue:p1"},
		{"network rm -t blue n1", ExitOK, "Deleted network blue:n1"},
		{"network rm -t blue six", ExitOK, "Deleted network blue:six"},
		{"tenant rm blue", ExitOK, "Deleted tenant blue"},
		{"tenant rm blue", ExitNotFound, "blue"},
		{"global set -s 172.30.0.0/16", ExitOK, "Set private-subnet 172.30.0.0/16"},
		{"global set -a flood", ExitOK, "Set arp-mode flood"},
		{"global info", ExitOK, "Private subnet: 172.30.0.0/16"},
		{"tenant rm default", ExitConflict, "default"},
		{"version --json", ExitOK, `"Version": "2.1.0"`},
	} {
		got := netctl(t, url, strings.Fields(tc.line)...)
		if text := got.out + got.errOut; got.code != tc.code || !strings.Contains(text, tc.has) {
			t.Errorf("netctl %s: exit code %d, want %d; %q does not say %q", tc.line, got.code, tc.code, text, tc.has)
		}
		if got.code != ExitOK && got.out != "" {
			t.Errorf("netctl %s failed, but says %q on stdout", tc.line, got.out)
		}
	}
}
