package ebpf

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Taking a program off by TCX waits for all processors each time; exchanging the
// program of a link waits for nobody. So a host that changes its driver puts a
// program that does nothing in the place of the others before it takes them off.

// newIdle loads a program that leaves each frame to whoever is next.
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
		if ifindexOf(l) != 0 { // its interface is there
			err = l.Update(idle)
		}
		if err := errors.Join(err, l.Close()); err != nil {
			errs = append(errs, fmt.Errorf("ebpf driver: stand aside on %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
