package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

const wantConf = `{
  "cniVersion": "1.0.0",
  "name": "contiv",
  "plugins": [
    {
      "type": "contivk8s",
      "capabilities": {
        "bandwidth": true,
        "portMappings": true
      }
    }
  ]
}
`

func fixture(t *testing.T) InstallConfig {
	t.Helper()
	dir := t.TempDir()
	c := InstallConfig{Program: filepath.Join(dir, "program"), BinDir: filepath.Join(dir, "opt", "cni", "bin"), ConfDir: filepath.Join(dir, "etc", "net.d")}
	if err := os.WriteFile(c.Program, []byte("new program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestInstallReplacesOlderFiles: both files stand, also over an older version and over what a former
// try has left; nothing else is touched; a second time changes nothing.
func TestInstallReplacesOlderFiles(t *testing.T) {
	c := fixture(t)
	plugin, conf := filepath.Join(c.BinDir, Plugin), filepath.Join(c.ConfDir, ConfFile)
	write(t, plugin, "old program, longer than the new one")
	write(t, filepath.Join(c.BinDir, ".contivk8s.new"), "half a pro")
	write(t, filepath.Join(c.BinDir, "portmap"), "another plugin")
	write(t, conf, "old")
	for _, name := range []string{"87-podman-bridge.conflist", "05-note.txt", "00-cilium.conf.bak"} {
		write(t, filepath.Join(c.ConfDir, name), "{}")
	}
	running, err := os.Open(plugin) // as a runtime has it that runs it just now
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	defer unix.Umask(unix.Umask(0o077)) // as strict ones are
	if err := Install(c); err != nil {
		t.Fatal(err)
	}
	if got := read(t, plugin); got != "new program" {
		t.Errorf("the plugin is %q", got)
	}
	if info, err := os.Stat(plugin); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the plugin: %v, %v", info.Mode(), err)
	}
	if diff := cmp.Diff(wantConf, read(t, conf)); diff != "" {
		t.Errorf("the configuration (-want +got):\n%s", diff)
	}
	was := make([]byte, 3)
	if _, err := running.Read(was); err != nil || string(was) != "old" {
		t.Errorf("the old program was written over: %q, %v", was, err)
	}
	for dir, want := range map[string][]string{
		c.BinDir:  {"contivk8s", "portmap"},
		c.ConfDir: {"00-cilium.conf.bak", "05-note.txt", "10-contiv.conflist", "87-podman-bridge.conflist"},
	} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", dir, diff)
		}
	}
	before, err := os.Stat(conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := Install(c); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(conf); err != nil || !os.SameFile(before, after) {
		t.Error("the same configuration was written again")
	}
}

// TestConfOfOtherPlaces: what is not where the plugin looks is said.
func TestConfOfOtherPlaces(t *testing.T) {
	c := fixture(t)
	c.Socket, c.StateDir = "/run/x.sock", "/var/lib/x"
	if err := Install(c); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(wantConf, "true\n      }", "true\n      },\n      \"socket\": \"/run/x.sock\",\n      \"stateDir\": \"/var/lib/x\"", 1)
	if diff := cmp.Diff(want, read(t, filepath.Join(c.ConfDir, ConfFile))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNothingIsInstalledBehindAnotherNetwork: where the runtime would take another network, nothing is placed.
func TestNothingIsInstalledBehindAnotherNetwork(t *testing.T) {
	for name, refused := range map[string]bool{
		"05-cilium.conflist": true, "10-calico.conflist": true, "0.json": true, "10-a.conf": true,
		"10-flannel.conflist": false, "100-crio-bridge.conflist": false, "99-loopback.conf": false, "05-cilium.conflist.off": false,
	} {
		c := fixture(t)
		write(t, filepath.Join(c.ConfDir, name), "{}")
		err := Install(c)
		if refused != errors.Is(err, model.ErrConflict) || refused && (!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), c.ConfDir)) {
			t.Errorf("beside %s: %v, refused %v wanted", name, err, refused)
		}
		if _, err := os.Stat(filepath.Join(c.BinDir, Plugin)); os.IsNotExist(err) != refused {
			t.Errorf("beside %s: the plugin is there: %v", name, err)
		}
	}
}

// TestInstallsBehindMultus: beside Multus' configuration both files are placed if it attaches pods to
// this network first, and neither is if pods would be on another one.
func TestInstallsBehindMultus(t *testing.T) {
	const ours = `{"cniVersion":"1.0.0","name":"contiv","plugins":[{"type":"contivk8s"},{"type":"tuning"}]}`
	for conf, refused := range map[string]bool{
		`{"name":"multus-cni-network","type":"multus","delegates":[` + ours + `]}`:                                          false,
		`{"name":"multus-cni-network","plugins":[{"type":"multus","delegates":[` + ours + `]}]}`:                            false,
		`{"name":"multus-cni-network","type":"multus","delegates":[{"type":"contivk8s"}]}`:                                  false,
		`{"name":"multus-cni-network","type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/10-contiv.conflist"}`:      false,
		`{"name":"multus-cni-network","type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/10-flannel.conflist"}`:     true,
		`{"name":"multus-cni-network","type":"multus","clusterNetwork":"other","delegates":[` + ours + `]}`:                 true,
		`{"name":"multus-cni-network","type":"multus","delegates":[{"type":"flannel"},` + ours + `]}`:                       true,
		`{"name":"multus-cni-network","type":"multus","delegates":[{"plugins":[{"type":"flannel"},{"type":"contivk8s"}]}]}`: true,
		`{"name":"multus-cni-network","type":"multus"}`:                                                                     true,
		`{"name":"other","type":"genie","delegates":[` + ours + `]}`:                                                        true,
		`{"name":"multus-cni-network","type":"multus","delegates":`:                                                         true,
	} {
		c := fixture(t)
		write(t, filepath.Join(c.ConfDir, "00-multus.conf"), conf)
		if err := Install(c); refused != errors.Is(err, model.ErrConflict) || !refused && err != nil {
			t.Errorf("beside %s: %v, refused %v wanted", conf, err, refused)
		}
		if _, err := os.Stat(filepath.Join(c.ConfDir, ConfFile)); os.IsNotExist(err) != refused {
			t.Errorf("beside %s: the configuration is there: %v", conf, err)
		}
	}
}

// TestFailedInstallKeepsPreviousFiles: a sentence names the directory; the former files stay; the
// configuration does not come without the plugin.
func TestFailedInstallKeepsPreviousFiles(t *testing.T) {
	c := fixture(t)
	c.Program += "-none"
	if err := Install(c); err == nil || !strings.Contains(err.Error(), "install contivk8s into "+c.BinDir) {
		t.Errorf("no program: %v", err)
	}
	if _, err := os.Stat(c.ConfDir); !os.IsNotExist(err) {
		t.Errorf("a configuration without a plugin: %v", err)
	}
	c = fixture(t)
	write(t, c.ConfDir, "a file where the directory should be")
	if err := Install(c); err == nil || !strings.Contains(err.Error(), c.ConfDir) {
		t.Errorf("no directory: %v", err)
	}
}

func TestUninstallRemovesFiles(t *testing.T) {
	c := fixture(t)
	if err := Install(c); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(c.ConfDir, "20-other.conf"), "{}")
	for _, want := range []bool{true, false} {
		if was, err := RemoveConf(c.ConfDir); was != want || err != nil {
			t.Errorf("configuration: %v, %v", was, err)
		}
		if was, err := RemovePlugin(c.BinDir); was != want || err != nil {
			t.Errorf("plugin: %v, %v", was, err)
		}
	}
	if got := read(t, filepath.Join(c.ConfDir, "20-other.conf")); got != "{}" {
		t.Errorf("another's file is %q", got)
	}
	if _, err := RemovePlugin(c.Program); err == nil { // below a file
		t.Error("a directory that is a file was no trouble")
	}
}
