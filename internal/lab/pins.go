package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/driver/ebpf"
)

// A lab has a BPF file system of its own in its directory: what its hosts pin
// there goes away with it, whoever made it and however they ended.

func bpfDir(dir string) string { return filepath.Join(dir, "bpf") }

// PinDir is where the host's netplugin pins its programs and maps.
func (h *Host) PinDir() string { return filepath.Join(bpfDir(h.lab.st.Config.Dir), h.Name) }

// probe tells whether the kernel can run hosts on ebpf.
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

// unmountBPF takes the file system away, and with it what is pinned there;
// absent is fine.
func unmountBPF(dir string) error {
	at := bpfDir(dir)
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
