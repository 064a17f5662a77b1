package ebpf

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
)

// Detaching a program by TCX waits for all processors each time; replacing the program of a
// link does not wait. So a host that changes its driver replaces the programs by one that
// does nothing before it detaches them.

// newIdle loads a program that passes each frame on unchanged.
func newIdle() (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "idle", Type: ebpf.SchedCLS, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}, // TCX_NEXT, TC_ACT_UNSPEC
	})
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: load: %w", err)
	}
	return prog, nil
}

// installNoOpPrograms exchanges the programs of all pinned links for one that does nothing.
func installNoOpPrograms(dir string, names []string) error {
	idle, err := newIdle()
	if err != nil {
		return err
	}
	defer func() { _ = idle.Close() }() // links hold it
	var errs []error
	for _, name := range names {
		l, err := link.LoadPinnedLink(filepath.Join(dir, name), nil)
		if err != nil { // no link
			continue
		}
		if bpfattach.LinkedTo(l) != 0 { // its interface is there
			err = l.Update(idle)
		}
		if err := errors.Join(err, l.Close()); err != nil {
			errs = append(errs, fmt.Errorf("ebpf driver: disable the programs on %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
