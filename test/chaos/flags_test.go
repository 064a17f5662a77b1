//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func flagMistakes() []*mistake {
	return []*mistake{
		{name: "netplugin started with a wrong flag", needs: []string{"agent@", "plane@"}, do: wrongAgentFlag},
		{name: "netmaster started with a wrong flag", needs: []string{"master"}, do: wrongMasterFlag},
		{name: "netplugin started with another pin directory", only: testcluster.DriverEBPF, needs: []string{"agent@", "plane@"}, statusWords: []string{"contivVxlan0"}, do: otherPins},
		{name: "a new machine takes the name of a host", needs: []string{"agent@", "plane@", "master", "store"}, do: takenName},
		{name: "a second netplugin started beside the first", needs: []string{"agent@"}, do: secondAgent},
		{name: "a second netmaster started beside the first", needs: []string{"master", "store"}, do: secondMaster},
		{name: "netplugin taken off a host where it runs", needs: []string{"agent@"}, do: uninstallRunning},
		{name: "a clone of a host starts beside it", needs: []string{"agent@", "plane@", "master", "store"}, do: clonedHost},
	}
}

// nowhere is an address that no host of the lab has.
const nowhere = "203.0.113.9"

// agentFlags are wrong flags: netplugin refuses them, or waits for what is not
// there.
var agentFlags = [][]string{
	{"--driver", "nosuch"},
	{"--host", "-bad-"},
	{"--nosuch"},
	{"--etcd-endpoints", "http://127.0.0.1:1"},
	{"--private-subnet", "10.77.0.0/16"},
	{"--fwdmode", "routing"},
	{"--cni-socket", "/proc/contiv.sock"},
	{"--ebpf-pin-dir", "relative"},
	{"--vlan-uplinks", "two words"},
	{"--vxlan-port", "0"},
	{"--rest-address", nowhere + ":9006"},
	{"--netmaster", "127.0.0.1:1"},
	{"--mode", "nosuch"},
	{"--vtep-ip", nowhere},
	{"--ctrl-ip", nowhere},
	{"--state-dir", "/proc/nosuch"},
	{"--ebpf-map-sizes", "nosuch=1"},
	{"--ebpf-map-sizes", "privates=1"},
	{"--ovs-datapath", "x"},
	{"--log-level", "LOUD"},
	{"stray"},
}

var masterFlags = [][]string{
	{"--nosuch"},
	{"--etcd-endpoints", "http://127.0.0.1:1"},
	{"--external-address", "nonsense"},
	{"--internal-address", nowhere + ":9999"},
	{"--external-address", nowhere + ":9999"},
	{"--cluster-mode", "nosuch"},
	{"--log-level", "LOUD"},
	{"stray"},
	{"--etcd-endpoints", "http://127.0.0.1:99999"},
	{"--consul-endpoints", "http://127.0.0.1:8500"},
}

func wrongAgentFlag(ctx context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
	flags := agentFlags[r.IntN(len(agentFlags))]
	w.t.Logf("netplugin %s", strings.Join(flags, " "))
	if err := h.Agent().Stop(10 * time.Second); err != nil {
		return nil, err
	}
	name := h.Name + "-netplugin"
	w.down[name] = true // it may end, and should
	p, err := h.LaunchAgentWith(flags)
	back := func(ctx context.Context) error {
		delete(w.down, name)
		return errors.Join(p.Stop(10*time.Second), w.startAgent(ctx, h))
	}
	return back, errors.Join(err, w.exitsOrWaits(ctx, p))
}

// exitsOrWaits lets a daemon with a wrong flag show what it does: if it ends, it
// says why.
func (w *world) exitsOrWaits(ctx context.Context, p *testcluster.Process) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if p.Wait(short) != nil {
		return nil // it waits, or serves
	}
	if p.Tail(3) == "" {
		return fmt.Errorf("%s ended without a word", p.Name)
	}
	return nil
}

// refused runs a program that is to end by itself, with an error and a reason.
func refused(ctx context.Context, ns *testcluster.Namespace, dir string, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := ns.Command(ctx, argv[0], argv[1:]...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("%s succeeded: %s", strings.Join(argv, " "), out)
	case ctx.Err() != nil:
		return fmt.Errorf("%s went on: %s", strings.Join(argv, " "), out)
	case len(out) < 20:
		return fmt.Errorf("%s says only %q", strings.Join(argv, " "), out)
	}
	return nil
}

func secondAgent(ctx context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	return nil, refused(ctx, h.NS, h.Dir, h.Agent().Argv)
}

func secondMaster(ctx context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
	p := w.Process("netmaster")
	return nil, refused(ctx, w.Master, filepath.Dir(p.Log), p.Argv)
}

func uninstallRunning(ctx context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	return nil, refused(ctx, h.NS, h.Dir, append(slices.Clone(h.Agent().Argv), "--uninstall"))
}

func wrongMasterFlag(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	flags := masterFlags[r.IntN(len(masterFlags))]
	w.t.Logf("netmaster %s", strings.Join(flags, " "))
	if err := w.Process("netmaster").Stop(10 * time.Second); err != nil {
		return nil, err
	}
	w.down["netmaster"] = true
	p, err := w.Masters.LaunchMaster(flags)
	back := func(ctx context.Context) error {
		delete(w.down, "netmaster")
		return errors.Join(p.Stop(10*time.Second), w.startMaster(ctx))
	}
	return back, errors.Join(err, w.exitsOrWaits(ctx, p))
}

func otherPins(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	if err := h.Agent().Stop(10 * time.Second); err != nil {
		return nil, err
	}
	name := h.Name + "-netplugin"
	w.down[name] = true
	other := h.PinDir() + "-other"
	p, err := h.LaunchAgentWith([]string{"--ebpf-pin-dir", other})
	back := func(ctx context.Context) error {
		delete(w.down, name)
		return errors.Join(p.Stop(10*time.Second), os.RemoveAll(other), w.startAgent(ctx, h))
	}
	return back, errors.Join(err, w.exitsOrWaits(ctx, p))
}

// other starts a second netplugin in a namespace of its own that says it is h.
func (w *world) other(ctx context.Context, h *testcluster.Host, state string) (undo, error) {
	ns, err := w.AddNamespace("impostor")
	if err != nil {
		return nil, err
	}
	back := func(context.Context) error { return w.DropContainer("impostor") }
	wire, err := w.Network.JoinControl(ns, 77)
	if err != nil {
		return back, err
	}
	args := []string{
		"--host", h.Name, "--ctrl-ip", wire.String(), "--vtep-ip", wire.String(), "--etcd-endpoints", w.Store.StoreURL(),
		"--driver", "fake", "--ebpf-pin-dir", h.PinDir() + "-impostor", "--state-dir", state, "--rest-address", "none",
		"--cni-socket", filepath.Join(state, "cni.sock"),
	}
	cmd := ns.Command(ctx, filepath.Join(w.Config().BinDir, "netplugin"), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return back, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(20 * time.Second): // who is refused ends before
		err = errors.Join(cmd.Process.Kill(), <-ended)
	}
	w.t.Logf("an impostor of %s ended: %v", h.Name, err)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	w.t.Logf("it said: %s", lines[len(lines)-1])
	if !strings.Contains(out.String(), h.Name) {
		return back, fmt.Errorf("an impostor of %s was not told so:\n%s", h.Name, out.String())
	}
	return back, nil
}

func takenName(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	state, err := os.MkdirTemp("", "contiv-chaos-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(state) }() // in the temporary directory
	return w.other(ctx, h, state)
}

func clonedHost(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	state, err := os.MkdirTemp("", "contiv-chaos-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(state) }() // in the temporary directory
	if err := os.CopyFS(state, os.DirFS(h.StateDir())); err != nil {
		return nil, err
	}
	return w.other(ctx, h, state)
}
