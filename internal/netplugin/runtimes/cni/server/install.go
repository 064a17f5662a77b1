package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// Plugin is the program's file.
	Plugin = "contivk8s"
	// ConfFile is the configuration's; runtimes take the first by name.
	ConfFile = "10-contiv.conflist"
	// cniVersion is one that all runtimes of the day understand.
	cniVersion = "1.0.0"
)

// InstallConfig says what goes where.
type InstallConfig struct {
	Program  string // the plugin to install
	BinDir   string // where the runtime looks for plugins
	ConfDir  string // where it looks for configurations
	Socket   string // netplugin's, when it is not the plugin's default
	StateDir string // likewise
}

// Install places the plugin, then the configuration.
func Install(c InstallConfig) error {
	if err := c.alone(); err != nil {
		return err
	}
	if err := copyProgram(c.Program, filepath.Join(c.BinDir, Plugin)); err != nil {
		return fmt.Errorf("install %s into %s: %w", Plugin, c.BinDir, err)
	}
	conf, err := c.conf()
	if err == nil {
		err = os.MkdirAll(c.ConfDir, 0o755)
	}
	path := filepath.Join(c.ConfDir, ConfFile)
	if err == nil {
		if old, was := os.ReadFile(path); was == nil && bytes.Equal(old, conf) {
			return nil // runtimes reload a directory when it changes
		}
		err = durable.WriteFile(path, conf)
	}
	if err != nil {
		return fmt.Errorf("install the CNI configuration into %s: %w", c.ConfDir, err)
	}
	return nil
}

// alone refuses a directory whose first configuration is another network's: pods
// would be attached there, without a policy of ours. Multus' may come first if it calls ours.
func (c InstallConfig) alone() error {
	entries, err := os.ReadDir(c.ConfDir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for other CNI configurations: %w", err)
	}
	for _, e := range entries {
		if e.Name() < ConfFile && slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) && !delegates(filepath.Join(c.ConfDir, e.Name())) {
			return model.Errorf(model.ErrConflict, "%s has %s, which runtimes use before %s: containers would be attached to that network, without Contiv's policies; remove that file, or move it elsewhere",
				c.ConfDir, e.Name(), ConfFile)
		}
	}
	return nil
}

// multusConf is the part of a configuration that says what Multus calls.
type multusConf struct {
	Type           string       `json:"type"`
	Plugins        []multusConf `json:"plugins"`        // of a list
	ClusterNetwork string       `json:"clusterNetwork"` // of Multus: the file of the main network, in place of Delegates
	Delegates      []multusConf `json:"delegates"`      // of Multus: the first is the main network
}

// first is the plugin that a configuration calls first.
func (m multusConf) first() multusConf {
	if len(m.Plugins) > 0 {
		return m.Plugins[0]
	}
	return m
}

// delegates reports whether a file is a configuration of Multus whose main network is this
// one, by a copy of the configuration or by its file's name.
func delegates(file string) bool {
	var c multusConf
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &c) != nil {
		return false
	}
	switch c = c.first(); {
	case c.Type != "multus" && c.Type != "multus-shim":
		return false
	case c.ClusterNetwork != "":
		return filepath.Base(c.ClusterNetwork) == ConfFile
	}
	return len(c.Delegates) > 0 && c.Delegates[0].first().Type == Plugin
}

// conf is the configuration; keys that have the plugin's defaults are left out.
func (c InstallConfig) conf() ([]byte, error) {
	type plugin struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
		Socket       string          `json:"socket,omitempty"`
		StateDir     string          `json:"stateDir,omitempty"`
	}
	text, err := json.MarshalIndent(struct {
		Version string   `json:"cniVersion"`
		Name    string   `json:"name"`
		Plugins []plugin `json:"plugins"`
	}{cniVersion, "contiv", []plugin{{Plugin, map[string]bool{"portMappings": true, "bandwidth": true}, c.Socket, c.StateDir}}}, "", "  ")
	return append(text, '\n'), err
}

// copyProgram makes a program of another, whole, under its name. What a copy that was
// cut short has left is overwritten by the next.
func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was read
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	unfinished := filepath.Join(filepath.Dir(to), "."+filepath.Base(to)+".new")
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755) // whatever the umask
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(unfinished, to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return durable.SyncDir(filepath.Dir(to))
}

// RemoveConf takes the configuration away, and tells whether there was one.
func RemoveConf(dir string) (bool, error) { return remove(filepath.Join(dir, ConfFile)) }

// RemovePlugin takes the plugin away, and tells whether there was one.
func RemovePlugin(dir string) (bool, error) { return remove(filepath.Join(dir, Plugin)) }

func remove(path string) (bool, error) {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
