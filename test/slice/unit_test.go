//go:build integration

package slice

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestSystemdUnitIsUnderPolicies runs the commands of examples/systemd as systemd does, on a host with a place
// of its own for namespaces: the unit waits for netplugin, its service is reached as the
// group's policy says, what is not there fails at once, and the end leaves nothing.
// (systemd itself reads the files in TestSystemdTakesTheUnits of test/docker.)
func TestSystemdUnitIsUnderPolicies(t *testing.T) {
	shared(t)
	need(t, "/usr/bin/python3", "/usr/bin/curl")
	onOne(t, both, unit)
}

// separateNamespaces is the first process of a host that has namespaces of its own in /run/netns.
const separateNamespaces = `mount --make-rprivate / && mount -t proc proc /proc && mkdir -p /run/netns && mount -t tmpfs none /run/netns && touch "$READY" && sleep 100000 & wait; sleep 100000`

const examples = "../../examples/systemd/"

// service is the part of a unit's file that says what to do, by key.
type service map[string][]string

// serviceIn reads a unit's file for an instance.
func serviceIn(t *testing.T, file, instance string) service {
	t.Helper()
	data, err := os.ReadFile(examples + file)
	if err != nil {
		t.Fatal(err)
	}
	s := service{}
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(string(data), "%i", instance)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = line
		case !ok || strings.HasSuffix(line, `\`) || strings.Contains(line, "%"):
			t.Fatalf("%s: this test does not read %q", file, line)
		case section == "[Service]":
			s[key] = append(s[key], value)
		}
	}
	return s
}

// words splits a command line by blanks and single quotes; may fail says a leading dash.
func words(line string) (out []string, mayFail bool) {
	line, mayFail = strings.CutPrefix(line, "-")
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out, mayFail
}

// instance is a unit contiv-netns@NAME on a host.
type instance struct {
	*cluster
	h    *testcluster.Host
	name string
	service
	env  []string
	said string // a file with what its commands say
}

// instanceOf is the unit with the settings of a text, as its EnvironmentFile has them.
func (c *cluster) instanceOf(h *testcluster.Host, name, settings string) *instance {
	c.t.Helper()
	i := &instance{cluster: c, h: h, name: name, service: serviceIn(c.t, "contiv-netns@.service", name), said: filepath.Join(c.t.TempDir(), "said")}
	if want := []string{"/etc/contiv/processes/" + name + ".conf"}; !slices.Equal(i.service["EnvironmentFile"], want) {
		c.t.Fatalf("its settings are in %v, want %v", i.service["EnvironmentFile"], want)
	}
	for line := range strings.Lines(settings) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			i.env = append(i.env, line)
		}
	}
	return i
}

// command runs the lines of a key as systemd does: one after the other, to the first that
// fails and may not.
func (i *instance) command(ctx context.Context, key string) error {
	if len(i.service[key]) == 0 {
		return fmt.Errorf("the unit has no %s", key)
	}
	said, err := os.OpenFile(i.said, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	for _, line := range i.service[key] {
		args, mayFail := words(strings.ReplaceAll(line, "/usr/bin/netctl", filepath.Join(i.Config().BinDir, "netctl")))
		cmd := i.h.NS.Command(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), append(i.env, "CONTIV_CNI_SOCKET="+i.h.CNISocket(), "CONTIV_CNI_STATE_DIR="+i.h.StateDir())...)
		cmd.Stdout, cmd.Stderr = said, said
		if err := cmd.Run(); err != nil && !mayFail {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

func (i *instance) start(ctx context.Context) error {
	if err := i.command(ctx, "ExecStartPre"); err != nil {
		return err
	}
	return i.command(ctx, "ExecStart")
}

// says waits until a command has said something.
func (i *instance) says(what string) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, what, func(context.Context) error {
		data, err := os.ReadFile(i.said)
		if err == nil && !strings.Contains(string(data), what) {
			err = fmt.Errorf("it says %q", data)
		}
		return err
	}); err != nil {
		i.t.Fatal(err)
	}
}

// inside runs a command in its namespace.
func (i *instance) inside(args ...string) (string, error) {
	return i.h.Run(i.t.Context(), "ip", append([]string{"netns", "exec", i.name}, args...)...)
}

func unit(t *testing.T, driver string) {
	c := up(t, driver, "unit", 1, func(cfg *testcluster.Config) { cfg.HostInit = []string{"/bin/sh", "-c", separateNamespaces} })
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 default-net",
		"group create -t blue default-net clients",
		"policy create -t blue p",
		"policy rule-add -t blue -d in -p 1 -j deny p nobody",
		"policy rule-add -t blue -d in -p 10 -g clients -j allow p clients",
		"group create -t blue -p p default-net web",
	)
	h := c.host("h1")
	conf, err := os.ReadFile(examples + "web.conf")
	if err != nil {
		t.Fatal(err)
	}
	web := c.instanceOf(h, "web", string(conf))

	// Before there is a netplugin it waits.
	if err := h.Agent().Kill(); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- web.start(t.Context()) }()
	web.says("start netplugin on this host")
	if err := h.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.hasEndpoints("blue:default-net", 1)

	// Its service, and two that ask.
	of := serviceIn(t, "web.service", "")
	if want := []string{"/run/netns/web"}; !slices.Equal(of["NetworkNamespacePath"], want) || len(of["ExecStart"]) != 1 {
		t.Fatalf("web.service is in %v, want %v", of["NetworkNamespacePath"], want)
	}
	args, _ := words(of["ExecStart"][0])
	server, err := h.Start("web", nil, append([]string{"ip", "netns", "exec", "web"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	client, other := c.instanceOf(h, "client", "ATTACH=--tenant blue --group clients"), c.instanceOf(h, "other", "ATTACH=--tenant blue")
	for _, x := range []*instance{client, other} {
		if err := x.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	out, err := web.inside("ip", "-4", "-o", "address", "show", "dev", "eth0")
	f := strings.Fields(out)
	if err != nil || len(f) < 4 {
		t.Fatal(err, out)
	}
	address, _, _ := strings.Cut(f[3], "/")
	ask := func(x *instance) error {
		_, err := x.inside("curl", "-sSf", "--max-time", "2", "-o", "/dev/null", "http://"+address+"/")
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := testcluster.Until(ctx, "the service to answer", func(context.Context) error { return ask(client) }); err != nil {
		t.Fatal(err)
	}
	if err := ask(other); exitOf(err) != 28 { // curl's for what takes too long
		t.Errorf("who is not let in by the group's policy got %v", err)
	}

	// What is not there, and the end.
	wrong := c.instanceOf(h, "wrong", "ATTACH=--tenant blue --group nobody")
	if err := wrong.start(ctx); exitOf(err) != 1 {
		t.Errorf("a group that does not exist: %v", err)
	}
	wrong.says("nobody")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*instance{client, other, web, wrong} {
		if err := x.command(ctx, "ExecStopPost"); err != nil {
			t.Error(err)
		}
	}
	c.hasEndpoints("blue:default-net", 0)
	if out, err := h.Run(ctx, "ls", "/run/netns"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("left: %v %s", err, out)
	}
}
