package hostservices

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
)

// loadPinned loads programs onto maps that are pinned in a directory, or will be.
func loadPinned(spec *ebpf.CollectionSpec, pins string) (*ebpf.Collection, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the memory limit: %w", err)
	}
	if err := bpfattach.OnBPFFS(pins); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return nil, err
	}
	options := ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}}
	c, err := ebpf.NewCollectionWithOptions(spec, options)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // of an earlier version
		for name := range spec.Maps {
			if err := os.RemoveAll(filepath.Join(pins, name)); err != nil {
				return nil, err
			}
		}
		c, err = ebpf.NewCollectionWithOptions(spec, options)
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = errors.Join(err, errors.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return c, nil
}

// Remove takes everything away that any process has pinned in a directory.
func Remove(pins string) error {
	entries, err := os.ReadDir(pins)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range entries {
		path := filepath.Join(pins, e.Name())
		if l, err := link.LoadPinnedLink(path, nil); err == nil {
			failed = append(failed, bpfattach.RemoveLink(l))
			continue
		}
		failed = append(failed, os.Remove(path))
	}
	return errors.Join(append(failed, os.Remove(pins))...)
}
