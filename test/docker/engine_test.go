//go:build integration

package docker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	dockerlab "github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// engine is a dockerd on a simulated host; what fails ends the test t.
type engine struct {
	*dockerlab.Engine
	t    *testing.T
	host *testcluster.Host

	hang      sync.Mutex
	restarted time.Time // because it hung
}

func (e *engine) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *engine) start(flags ...string) { e.t.Helper(); e.must(e.Start(e.t.Context(), flags...)) }
func (e *engine) stop()                 { e.t.Helper(); e.must(e.Stop(e.t.Context())) }
func (e *engine) kill()                 { e.t.Helper(); e.must(e.Kill(e.t.Context())) }

// debugAddress is where netplugin tells, on its host, what its goroutines do.
const debugAddress = "127.0.0.1:6061"

// env tells netplugin on the host where its engine is.
func (e *engine) env() []string {
	return append(e.Env(), "CONTIV_NETPLUGIN_LOG_LEVEL=DEBUG", "CONTIV_NETPLUGIN_DEBUG_ADDRESS="+debugAddress, "CONTIV_NETPLUGIN_DNS_UPSTREAM="+upstream)
}

// try runs the docker client, once more where the engine was at fault.
func (e *engine) try(args ...string) (string, error) {
	again := func() (string, error, bool) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		out, err := e.Docker(ctx, args...)
		return out, err, ctx.Err() != nil && e.revived(start)
	}
	out, err, revived := again()
	if revived {
		out, err, _ = again()
		if args[0] == "rm" && err != nil && strings.Contains(out, "No such container") {
			err = nil // it went at the new start
		}
	}
	return out, err
}

// revived reports whether the engine has been restarted since a hanging command began. It
// restarts an engine that hangs by its own fault. For other hangs it logs what waits for
// what.
func (e *engine) revived(began time.Time) bool {
	e.hang.Lock()
	defer e.hang.Unlock()
	if e.restarted.After(began) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stacks, err := e.Stacks(ctx)
	if err != nil {
		stacks = err.Error()
	}
	if !dockerlab.Deadlocked(stacks) {
		ours, err := e.host.NS.Command(ctx, "curl", "-sS", "http://"+debugAddress+"/debug/pprof/goroutine?debug=2").CombinedOutput()
		e.t.Logf("the engine on %s hangs:\n%s\nnetplugin:\n%s %v", e.host.Name, stacks, ours, err)
		return false
	}
	e.t.Logf("the engine on %s hangs by a fault of its own (moby/moby#46661) and is started anew", e.host.Name)
	e.kill()
	e.start()
	e.restarted = time.Now()
	return true
}

// docker runs the docker client; it must succeed. The command is one string,
// split at blanks.
func (e *engine) docker(line string) string {
	e.t.Helper()
	out, err := e.try(strings.Fields(line)...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// refused runs the docker client; it must fail and say so.
func (e *engine) refused(line string, parts ...string) {
	e.t.Helper()
	out, err := e.try(strings.Fields(line)...)
	if err == nil {
		e.t.Errorf("docker %s succeeded: %s", line, out)
	}
	for _, p := range parts {
		if !strings.Contains(out, p) {
			e.t.Errorf("docker %s says %q, which lacks %q", line, out, p)
		}
	}
}

// run starts a container that sleeps and serves HTTP on port 80; name first.
func (e *engine) run(name, flags string) {
	e.t.Helper()
	e.docker("run -d --name " + name + " " + flags + " bb httpd -f -h /www")
}

// reaches asks from a container until the answer is as wanted: what is "ping" or a TCP
// port. On a busy machine the client alone takes seconds.
func (e *engine) reaches(from, what, addr string, want bool) {
	e.t.Helper()
	ask := func() (string, error) { return e.try("exec", from, "ping", "-c1", "-W1", addr) }
	if what != "ping" { // busybox's static wget does not survive the absence of libnss
		pid := e.docker("inspect -f {{.State.Pid}} " + from)
		ask = func() (string, error) {
			return e.Inside(e.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "timeout", "1",
				"bash", "-c", "exec 3<>/dev/tcp/"+addr+"/"+what+" && echo -e 'GET / HTTP/1.0\r\n\r' >&3 && grep -q ok <&3")
		}
	}
	e.until(fmt.Sprintf("%s to %s %s: %v", from, addr, what, want), 40*time.Second, func() error {
		out, err := ask()
		if (err == nil) != want {
			return fmt.Errorf("it is %v: %s", err == nil, out)
		}
		return nil
	})
}

// addr is a container's address on a network.
func (e *engine) addr(container, network string) string {
	e.t.Helper()
	out, err := e.try("inspect", "-f", fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", network), container)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

func (e *engine) until(what string, limit time.Duration, f func() error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := testcluster.Until(ctx, what, func(context.Context) error { return f() }); err != nil {
		e.t.Fatal(err)
	}
}

// scrape returns what Prometheus would have of the host's netplugin.
func (e *engine) scrape() testenv.Scrape {
	e.t.Helper()
	out := testenv.Scrape{}
	text, err := e.host.Run(e.t.Context(), "curl", "-s", "http://127.0.0.1:9006/metrics")
	e.must(err)
	e.must(out.Add("netplugin", e.host.Name+":9006", text))
	return out
}
