//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestProcessesAreUnderPolicies attaches bare processes with netctl, by their namespace and by their
// number: they are under the policies of containers, both ways, also when their labels
// and netplugin change; detaching works with netplugin down, and who ends without it
// leaves nothing.
func TestProcessesAreUnderPolicies(t *testing.T) {
	shared(t)
	onOne(t, both, process)
}

// processes runs netctl on a host, against its netplugin.
func (c *cluster) process(h *testcluster.Host, line string) (string, error) {
	args := append(strings.Fields(line), "--socket", h.CNISocket())
	return h.Run(c.t.Context(), filepath.Join(c.Config().BinDir, "netctl"), args...)
}

// attached is what an attachment by netctl answered.
func (c *cluster) attached(h *testcluster.Host, line string) (r attach.Result) {
	c.t.Helper()
	out, err := c.process(h, line+" --json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil || len(r.Addresses) != 2 {
		c.t.Fatalf("%s: %v %s", line, err, out)
	}
	return r
}

func process(t *testing.T, driver string) {
	c := pairUp(t, driver, "proc")
	h := c.host("h1")
	c.policy("desk", "--label", "app=desk", "--order", "1", "--rule", "in allow tcp/81")
	ns, err := c.AddNamespace("bare")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Serve("bare", "tcp/80", "tcp/81"); err != nil {
		t.Fatal(err)
	}
	attach := "attach --tenant blue --group servers --label app=shop --netns " + ns.Path()
	is := func(when string, r attachResult, from string, port uint16, want testcluster.Verdict) {
		t.Helper()
		for _, a := range r.Addresses {
			to := testcluster.Target{Proto: "tcp", Addr: a.Prefix.Addr(), Port: port}
			verdict := func() testcluster.Verdict { return c.space(from).Probe(t.Context(), to, 400*time.Millisecond).Verdict }
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := testcluster.Until(ctx, "a verdict", func(context.Context) error {
				if got := verdict(); got != want {
					return fmt.Errorf("%s: %s to the process at %s: %s, want %s", when, from, to, got, want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	r := c.attached(h, attach)
	is("its group's policy", r, "c", 80, testcluster.OK)
	is("its group's policy", r, "s", 80, testcluster.Denied)
	if a := ns.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: c.addr("c", "6"), Port: 80}, time.Second); a.Verdict != testcluster.OK {
		t.Errorf("the process to c: %s", a)
	}
	if a := ns.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: c.addr("s", "4"), Port: 80}, 400*time.Millisecond); a.Verdict != testcluster.Denied {
		t.Errorf("the process to s, which lets clients in only: %s", a)
	}
	is("before its label", r, "s", 81, testcluster.Denied)
	if again := c.attached(h, strings.Replace(attach, "app=shop", "app=desk", 1)); again.Endpoint != r.Endpoint || again.Addresses[0] != r.Addresses[0] {
		t.Errorf("with another label it is %+v, was %+v", again, r)
	}
	is("its label's policy", r, "s", 81, testcluster.OK)
	if err := h.RestartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("netplugin started anew", r, "s", 81, testcluster.OK)
	is("netplugin started anew", r, "s", 80, testcluster.Denied)
	c.hasEndpoints("blue:net", 4)

	// Without netplugin.
	if err := h.Agent().Kill(); err != nil {
		t.Fatal(err)
	}
	if out, err := c.process(h, attach); exitOf(err) != 5 || !strings.Contains(out, "start netplugin on this host") {
		t.Errorf("attach without netplugin: %v %s", err, out)
	}
	detach := "detach --netns " + ns.Path() + " --state-dir " + h.StateDir()
	if out, err := c.process(h, detach); err != nil || !strings.Contains(out, "when it runs") {
		t.Errorf("detach without netplugin: %v %s", err, out)
	}
	if err := h.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.hasEndpoints("blue:net", 3)
	if out, err := c.process(h, detach); err == nil || !strings.Contains(out, "nothing is attached there") {
		t.Errorf("detach again: %v %s", err, out)
	}

	// By its number; it ends without a word.
	p := exec.CommandContext(t.Context(), "unshare", "--net", "sleep", "1000")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = testcluster.Until(ctx, "the process to have its own namespace", func(context.Context) error { // it starts in the machine's
		if has, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.Process.Pid)); err != nil || has == own {
			return fmt.Errorf("it is in %s: %w", has, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	pid := "--pid " + strconv.Itoa(p.Process.Pid)
	r = c.attached(h, "attach -t blue -g servers "+pid)
	c.hasEndpoints("blue:net", 4)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it was killed
	c.hasEndpoints("blue:net", 3)
	if out, err := c.process(h, "attach -t blue -g servers "+pid); exitOf(err) != 2 || !strings.Contains(out, "there is no such process") {
		t.Errorf("attach a process that has ended: %v %s", err, out)
	}
	if out, err := c.process(h, "attach -t blue -g nobody --netns "+ns.Path()); exitOf(err) != 3 {
		t.Errorf("a group that does not exist: %v %s", err, out)
	}
	if links, err := ns.Links(); err != nil || len(links) != 1 {
		t.Errorf("the namespace has the interfaces %v %v", links, err)
	}
}

type attachResult = attach.Result

// exitOf is the exit code of a command that failed.
func exitOf(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return 0
}
