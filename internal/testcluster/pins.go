package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/ebpf"
)

// A lab has a BPF file system of its own in its directory: its hosts' pins go with it,
// however the processes that made them ended.

func bpfDir(dir string) string { return filepath.Join(dir, "bpf") }

// PinDir is where the host's netplugin pins its programs and maps.
func (h *Host) PinDir() string {
	return filepath.Join(bpfDir(h.lab.st.Config.Dir), h.Name)
}

// probe reports whether the kernel can run hosts on ebpf.
func probe() error { return ebpf.Probe() }

func mountBPF(dir string) error {
	at := bpfDir(dir)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("bpf", at, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount a BPF file system at %s: %w", at, err)
	}
	return nil
}

// SmallDisk puts a file system of its own under the host's state, so that it can be full;
// it goes with the lab, however the processes ended. It stops netplugin, forgets the state,
// and starts netplugin again.
func (h *Host) SmallDisk(ctx context.Context, bytes int) error {
	if err := h.Agent().Stop(grace); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(h.StateDir()), os.MkdirAll(h.StateDir(), 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", h.StateDir(), "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", bytes)); err != nil {
		return fmt.Errorf("mount a small disk at %s: %w", h.StateDir(), err)
	}
	return h.StartAgent(ctx)
}

// unmountAll takes the file systems of a lab away, and with them what is pinned
// there; absent is fine.
func unmountAll(dir string) error {
	at := []string{bpfDir(dir)}
	states, err := filepath.Glob(filepath.Join(dir, "h*", "state"))
	for _, m := range append(at, states...) {
		err = errors.Join(err, unmount(m))
	}
	return err
}

func unmount(at string) error {
	for {
		err := unix.Unmount(at, unix.MNT_DETACH)
		switch {
		case err == nil: // perhaps there is another one below
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		default:
			return fmt.Errorf("unmount %s: %w", at, err)
		}
	}
}
