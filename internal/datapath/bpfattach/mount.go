package bpfattach

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// StandardMount is where the BPF file system is mounted.
const StandardMount = "/sys/fs/bpf"

const bpfMagic = 0xcafe4a11

// OnBPFFS makes sure that a directory, which need not exist, is on a BPF file system; it
// mounts the standard place if needed.
func OnBPFFS(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		var st unix.Statfs_t
		err := unix.Statfs(at, &st)
		if err == nil && uint32(st.Type) == bpfMagic {
			return nil
		}
		if err == nil && at == StandardMount {
			if err := unix.Mount("bpf", StandardMount, "bpf", 0, ""); err != nil {
				return fmt.Errorf("mount the BPF file system at %s: %w", StandardMount, err)
			}
			return nil
		}
		if at == filepath.Dir(at) {
			return model.Errorf(model.ErrInvalid, "pin directory %s is not on a BPF file system; mount one there, or take one below %s", dir, StandardMount)
		}
	}
}
