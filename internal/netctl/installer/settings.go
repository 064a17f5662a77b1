package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/internal/base/durable"
)

// tokenVariable gives netplugin a token where other users cannot see it.
const tokenVariable = "CONTIV_NETPLUGIN_TOKEN="

func (u unit) file() string { return "/etc/contiv/" + u.name + ".yaml" }

func (u unit) environment() string { return "/etc/contiv/" + u.name + ".env" }

// settings returns what the unit's file has.
func (m *Machine) settings(u unit) (map[string]string, error) {
	data, err := os.ReadFile(m.os().path(u.file()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var values map[string]yaml.Node
	if err := yaml.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", u.file(), err)
	}
	has := make(map[string]string, len(values))
	for k, v := range values {
		has[k] = v.Value
		if v.Kind == yaml.SequenceNode {
			items := make([]string, 0, len(v.Content))
			for _, i := range v.Content {
				items = append(items, i.Value)
			}
			has[k] = strings.Join(items, ",")
		}
	}
	return has, nil
}

// appendSettings adds to the unit's file what it does not have.
func (m *Machine) appendSettings(u unit) error {
	has, err := m.settings(u)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range u.settings {
		if _, there := has[s.key]; !there {
			value := s.value
			if strings.HasPrefix(value, "[") { // an IPv6 address with a port, which is no list
				value = "'" + value + "'"
			}
			fmt.Fprintf(&b, "%s: %s\n", s.key, value)
		}
	}
	name := m.os().path(u.file())
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	return os.WriteFile(name, append(data, b.String()...), 0o644)
}

// setToken writes the token of a unit, or takes it away again: "".
func (m *Machine) setToken(u unit, token string) error {
	name := m.os().path(u.environment())
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, tokenVariable) {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	switch {
	case token != "":
		b.WriteString(tokenVariable + token + "\n")
	case b.Len() == 0:
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return durable.WriteFile(name, []byte(b.String()))
}

// start has systemd start a unit now and at each boot, and waits until it is ready.
func (m *Machine) start(ctx context.Context, u unit) error {
	if m.active(ctx, u.name) {
		return nil
	}
	out, err := m.os().run(ctx, "systemctl", "enable", "--now", u.name)
	if err == nil {
		return nil
	}
	if log, e := m.os().run(ctx, "journalctl", "--unit", u.name, "--lines", "5", "--output", "cat", "--no-pager"); e == nil && log != "" {
		out = log
	}
	return fmt.Errorf("start %s: %w:\n%s", u.name, err, out)
}
