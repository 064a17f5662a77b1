package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni/server"
)

// once runs netplugin to its end.
func (c *cluster) once(args ...string) (int, string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.bin, "netplugin"), args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// uninstallFlags keep --uninstall from what other tests have on this machine.
func (c *cluster) uninstallFlags(more ...string) []string {
	return append([]string{
		"--uninstall", "--host", "n-host1", "--state-dir", filepath.Join(c.dir, "state"), "--cni-socket", c.socket(),
		"--ebpf-pin-dir", filepath.Join(c.dir, "bpf"), "--ovs-db", "unix:" + filepath.Join(c.dir, "none.sock"), "--docker-socket-dir", c.dir,
	}, more...)
}

// TestInstallCNI: the plugin that --install-cni installs attaches a container by the
// configuration that it installs; --uninstall, while none is attached, takes both
// away, and with --stay then waits for a signal.
func TestInstallCNI(t *testing.T) {
	c := newCluster(t)
	c.must("POST", "/api/v1/networks/default:default-net/", json.RawMessage(
		`{"tenantName":"default","networkName":"default-net","nwType":"data","encap":"vxlan","subnet":"10.1.2.0/24","gateway":"10.1.2.254"}`))
	dirs := []string{"--cni-bin-dir", filepath.Join(c.dir, "bin"), "--cni-conf-dir", filepath.Join(c.dir, "net.d")}
	where := []string{"--state-dir", filepath.Join(c.dir, "state"), "--cni-socket", c.socket()}
	if code, out := c.once(append(append([]string{"--install-cni"}, dirs...), where...)...); code != 0 {
		t.Fatalf("install: %d %s", code, out)
	}
	plugin := filepath.Join(c.dir, "bin", "contivk8s")
	conf, err := os.ReadFile(filepath.Join(c.dir, "net.d", server.ConfFile))
	if err != nil {
		t.Fatal(err)
	}
	// A runtime hands the list's plugin on with its name and version.
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	if err := json.Unmarshal(conf, &list); err != nil || len(list.Plugins) != 1 {
		t.Fatalf("%s: %v", conf, err)
	}
	list.Plugins[0]["cniVersion"], list.Plugins[0]["name"] = list.CNIVersion, list.Name
	stdin, err := json.Marshal(list.Plugins[0])
	if err != nil {
		t.Fatal(err)
	}
	ns := newNetns(t)
	cni := func(verb string) (int, string) {
		cmd := exec.CommandContext(t.Context(), plugin)
		cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=c1", "CNI_NETNS=" + ns, "CNI_IFNAME=eth0", "CNI_PATH=" + filepath.Dir(plugin)}
		cmd.Stdin = bytes.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	c.startPlugin()
	if code, out := cni("ADD"); code != 0 || !strings.Contains(out, "10.1.2.") {
		t.Fatalf("ADD: %d %s", code, out)
	}
	if code, out := c.once(c.uninstallFlags(dirs...)...); code == 0 {
		t.Errorf("uninstall beside a netplugin: %s", out)
	}
	c.plugin.stop()
	if code, out := c.once(c.uninstallFlags(dirs...)...); code == 0 || !strings.Contains(out, "1 containers are attached") {
		t.Errorf("uninstall under a container: %d %s", code, out)
	}
	if after, err := os.ReadFile(filepath.Join(c.dir, "net.d", server.ConfFile)); err != nil || !bytes.Equal(conf, after) {
		t.Errorf("an uninstall that was refused has touched the configuration: %v", err)
	}
	c.startPlugin()
	if code, out := cni("DEL"); code != 0 {
		t.Fatalf("DEL: %d %s", code, out)
	}
	c.plugin.stop()
	p := c.spawn("netplugin", nil, c.uninstallFlags(append(dirs, "--stay")...)...)
	c.eventually("uninstall says that it is done", func() error {
		if said := p.log.String(); !strings.Contains(said, "netctl host rm n-host1") {
			return errors.New(said)
		}
		return nil
	})
	for _, file := range []string{plugin, filepath.Join(c.dir, "net.d", server.ConfFile)} {
		if _, err := os.Stat(file); !os.IsNotExist(err) || !strings.Contains(p.log.String(), "removed "+file) {
			t.Errorf("%s: %v; it says %s", file, err, p.log)
		}
	}
	select {
	case <-p.done:
		t.Errorf("it did not stay: %v", p.err)
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if p.err != nil {
		t.Errorf("it ended by the signal: %v", p.err)
	}
}

// TestInstallFlagsAreRefusedByThemselves: what is done once has flags that mean nothing without it.
func TestInstallFlagsAreRefusedByThemselves(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string // "" = allowed
	}{
		{"", ""},
		{"--uninstall --force --stay --cni-bin-dir /a --cni-conf-dir /b", ""},
		{"--install-cni --cni-bin-dir /a --cni-conf-dir /b", ""},
		{"--force", "--force has no effect without --uninstall"},
		{"--stay", "--stay has no effect without --uninstall"},
		{"--install-cni --stay", "--stay has no effect without --uninstall"},
		{"--install-cni --uninstall", "opposites"},
		{"--cni-bin-dir /a", "--cni-bin-dir has no effect without --install-cni or --uninstall"},
		{"--cni-conf-dir /a", "--cni-conf-dir has no effect without"},
	} {
		var o options
		fs := newFlags(&o)
		if err := fs.ParseAll(strings.Fields(tc.args), func(string) string { return "" }); err != nil {
			t.Fatal(err)
		}
		if err := o.checkOnce(fs); (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.args, err, tc.want)
		}
	}
	// Nothing but the plugin beside netplugin is installed: here there is none.
	dir := t.TempDir()
	if err := installCNI(options{cniBinDir: dir, cniConfDir: dir}, io.Discard); err == nil || !strings.Contains(err.Error(), "install contivk8s into "+dir) {
		t.Errorf("without a plugin: %v", err)
	}
}
