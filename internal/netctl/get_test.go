package netctl

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// get shows every kind under each of its names, in every form.
func TestGetShowsEveryKind(t *testing.T) {
	m := newFakeMaster(t)
	furnish(m)
	for _, line := range []string{
		"get networks -a", "get net backend -t blue -o yaml", "get network backend -t blue -o json", "get networks -t blue -o wide",
		"get groups -t blue", "get group web -t blue -o yaml", "get endpointGroups -a -o wide", "get tenants", "get tenants -o wide",
		"get rules -t blue", "get rule web-in:http -t blue -o yaml", "get policies -t blue -o wide", "get netprofile -t blue -j",
		"get services -a -o yaml", "get service -a -o wide", "get app-profile -t blue", "get bgp host1 -o yaml", "get bgps",
		"get external-contracts -t blue -o wide", "get aci-gw", "get global -o yaml", "get global",
		"get groups -t blue -q",
	} {
		t.Run(strings.ReplaceAll(line, " ", "_"), func(t *testing.T) {
			got := netctl(t, m.url, strings.Fields(line)...)
			if got.code != ExitOK || got.errOut != "" {
				t.Fatalf("exit code %d, stderr %q", got.code, got.errOut)
			}
			golden(t, "get/"+strings.ReplaceAll(line, " ", "_"), got.out)
		})
	}
	for line, want := range map[string]int{
		"get": ExitUsage, "get nosuch": ExitUsage, "get network n extra": ExitUsage, "get network -o xml": ExitUsage,
		"get network nosuch": ExitNotFound, "get network -t nosuch": ExitNotFound,
	} {
		if got := netctl(t, m.url, strings.Fields(line)...); got.code != want || got.out != "" {
			t.Errorf("netctl %s: %+v", line, got)
		}
	}
}

// TestEveryCommandReportsAMissingGateway: a cluster without a gateway to ACI says so, whatever command asks.
func TestEveryCommandReportsAMissingGateway(t *testing.T) {
	url := startNetmaster(t)
	for _, line := range []string{"aci-gw info", "aci-gw info --json", "aci-gw inspect", "get aci-gw"} {
		if got := netctl(t, url, strings.Fields(line)...); got.code != ExitNotFound || !strings.Contains(got.errOut, "does not exist") {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

// lines is a Writer that tells when a line has come.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	got chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.got <- struct{}{}:
	default:
	}
	return l.buf.Write(b)
}

// wait waits for a text to have been written.
func (l *lines) wait(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		l.mu.Lock()
		all := l.buf.String()
		l.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-l.got:
		case <-deadline:
			t.Fatalf("%q has not come; there is\n%s", text, all)
		}
	}
}

// --watch shows what is created, changed and deleted, and ends without an
// error when interrupted.
func TestWatchShowsChangesUntilInterrupted(t *testing.T) {
	url := startNetmaster(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &lines{got: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, Env{
			Stdin: strings.NewReader(""), Stdout: out, Stderr: t.Output(),
			Getenv: func(n string) string { return map[string]string{"NETMASTER": url}[n] },
		}, strings.Fields("get policies --watch --interval 10ms -o wide"))
	}()
	out.wait(t, "Event  Tenant  Policy  Groups  Rules  Owner\n")
	netctl(t, url, "policy", "create", "p")
	out.wait(t, "created  default  p    0\n")
	netctl(t, url, "policy", "rule-add", "p", "1")
	out.wait(t, "changed  default  p    1\n")
	netctl(t, url, "policy", "rm", "p")
	out.wait(t, "deleted  default  p    1\n")
	interrupt()
	if got := <-code; got != ExitOK {
		t.Errorf("exit code %d", got)
	}
}

// A watch outlives a restart of netmaster: it says once that it waits, then that
// netmaster answers again, and shows what has changed meanwhile.
func TestWatchOutlivesARestart(t *testing.T) {
	m := newFakeMaster(t)
	m.store("policys", "default:p", `{"key":"default:p","policyName":"p","tenantName":"default","link-sets":{},"links":{}}`)
	ctx, interrupt := context.WithCancel(t.Context())
	out, errOut := &lines{got: make(chan struct{}, 1)}, &lines{got: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, Env{
			Stdin: strings.NewReader(""), Stdout: out, Stderr: errOut,
			Getenv: func(n string) string { return map[string]string{"NETMASTER": m.url}[n] },
		}, strings.Fields("get policies --watch --interval 10ms"))
	}()
	out.wait(t, "now    default  p\n")
	m.mu.Lock()
	m.refuse["GET /api/v1/policys/"] = refusal{503, "the cluster store is away"}
	m.mu.Unlock()
	errOut.wait(t, "warning: the cluster store is away; trying again\n")
	m.mu.Lock()
	delete(m.refuse, "GET /api/v1/policys/")
	m.store("policys", "default:q", `{"key":"default:q","policyName":"q","tenantName":"default","link-sets":{},"links":{}}`)
	m.mu.Unlock()
	errOut.wait(t, "netmaster answers again\n")
	out.wait(t, "created  default  q\n")
	interrupt()
	if got := <-code; got != ExitOK {
		t.Errorf("exit code %d", got)
	}
}
