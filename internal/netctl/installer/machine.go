package installer

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// Machine is the machine that netctl runs on. The zero value is ready.
type Machine struct {
	system system // nil = the real one; tests have another
}

// system is what the checks ask of the operating system.
type system interface {
	// path is where a file of the machine is.
	path(name string) string
	// run runs a program and returns what it prints.
	run(ctx context.Context, name string, args ...string) (string, error)
	root() bool
	// free returns why a port of an address cannot be listened on.
	free(ctx context.Context, network, address string) error
	// ahead is how far the machine's clock is before a netmaster's, which is of an authority and
	// answers at an address for joins.
	ahead(ctx context.Context, address string, authority jointoken.Fingerprint) (time.Duration, error)
}

func (m *Machine) os() system {
	if m.system == nil {
		return operatingSystem{}
	}
	return m.system
}

func (m *Machine) exists(name string) bool {
	_, err := os.Stat(m.os().path(name))
	return err == nil
}

// hasDocker reports whether an engine is there for netplugin to serve.
func (m *Machine) hasDocker() bool { return m.exists("/run/docker.sock") }

// active reports whether a service of systemd runs.
func (m *Machine) active(ctx context.Context, service string) bool {
	_, err := m.os().run(ctx, "systemctl", "is-active", "--quiet", service)
	return err == nil
}

type operatingSystem struct{}

func (operatingSystem) path(name string) string { return filepath.Clean(name) }

func (operatingSystem) root() bool { return os.Geteuid() == 0 }

func (operatingSystem) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (operatingSystem) free(ctx context.Context, network, address string) error {
	var lc net.ListenConfig
	if network == "udp" {
		c, err := lc.ListenPacket(ctx, network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return err
	}
	return l.Close()
}
