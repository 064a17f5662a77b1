package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// pluginRun is where the managed plugin has the lab's directory.
const pluginRun = "/host/run"

// CreatePlugin makes the managed plugin, as make plugin does, from the lab's programs, and
// ends the host's netplugin, whose place it takes. It is not enabled.
func (e *Engine) CreatePlugin(ctx context.Context, l *testcluster.Lab, name string) error {
	root, err := testcluster.Root(ctx, ".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(e.dir, "plugin")
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, filepath.Join(root, "packaging", "docker-plugin", "build.sh"), l.Config().BinDir, dir, name)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", build, err, out)
	}
	_, err = e.Docker(ctx, "plugin", "create", name, dir)
	return errors.Join(err, os.RemoveAll(dir), e.Host.KillAgent(), e.forgetDevices(ctx))
}

// forgetDevices removes the devices and pins of the netplugin that has ended: the plugin knows
// them by another path, and takes them for those of another netplugin.
func (e *Engine) forgetDevices(ctx context.Context) error {
	if e.Host.Driver() != testcluster.DriverEBPF {
		return nil
	}
	err := os.RemoveAll(e.Host.PinDir())
	for _, device := range []string{"contivVxlan0", "contivh0"} {
		if out, failed := e.Host.Run(ctx, "ip", "link", "del", device); failed != nil && !strings.Contains(out, "Cannot find device") {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// SetPlugin gives the plugin, which must not be enabled, the lab's flags of netplugin,
// further flags, and settings. Paths in flags are as the plugin sees them.
func (e *Engine) SetPlugin(ctx context.Context, l *testcluster.Lab, name string, flags []string, settings ...string) error {
	seen := func(path string) string { return strings.ReplaceAll(path, l.Config().Dir, pluginRun) }
	var args []string
	of := e.Host.AgentFlags()
	for i := 0; i < len(of); i++ {
		switch of[i] {
		case "--state-dir", "--cni-socket": // the plugin has its own
			i++
		case "--ebpf-pin-dir":
			i++
			args = append(args, "--ebpf-pin-dir", "/sys/fs/bpf/"+e.Host.Name)
		default:
			args = append(args, seen(of[i]))
		}
	}
	_, err := e.Docker(ctx, append([]string{
		"plugin", "set", name, "args=" + strings.Join(append(args, flags...), " "),
		"state.source=" + e.Host.StateDir(), "run.source=" + l.Config().Dir, "bpf.source=" + filepath.Dir(e.Host.PinDir()),
		"CONTIV_NETPLUGIN_DOCKER_ENDPOINT=unix://" + seen(e.Socket()), "CONTIV_NETPLUGIN_CNI_SOCKET=" + seen(e.Host.CNISocket()),
	}, settings...)...)
	return err
}

// EnablePlugin enables the plugin and waits until it can attach containers. The engine waits
// 12 s for its socket; on a busy machine the kernel may check the data plane's programs longer,
// and it is enabled once more.
func (e *Engine) EnablePlugin(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := testcluster.Until(ctx, "the managed plugin on "+e.Host.Name, func(ctx context.Context) error {
		_, err := e.Docker(ctx, "plugin", "enable", name)
		if err != nil && strings.Contains(err.Error(), "already enabled") {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	return testcluster.Until(ctx, "netplugin in the managed plugin on "+e.Host.Name, e.Host.Status)
}

// DisablePlugin ends netplugin in the plugin, whatever uses it.
func (e *Engine) DisablePlugin(ctx context.Context, name string) error {
	_, err := e.Docker(ctx, "plugin", "disable", "-f", name)
	return err
}

// JoinSwarm makes the engines, of which the first manages it, one swarm. Docker's own VXLAN
// leaves Contiv its port.
func JoinSwarm(ctx context.Context, manager *Engine, workers ...*Engine) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	at := manager.Host.Address.String()
	if _, err := manager.Docker(ctx, "swarm", "init", "--advertise-addr", at, "--data-path-port", "7789"); err != nil {
		return err
	}
	token, err := manager.Docker(ctx, "swarm", "join-token", "-q", "worker")
	for _, w := range workers {
		if err == nil {
			_, err = w.Docker(ctx, "swarm", "join", "--advertise-addr", w.Host.Address.String(), "--token", token, at+":2377")
		}
	}
	return err
}
