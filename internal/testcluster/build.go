package testcluster

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Programs are what a lab runs, by the names of their packages under cmd/.
var Programs = []string{"netmaster", "netplugin", "netctl", "contivk8s"}

// Build compiles programs (default: Programs) of the module around dir into bin.
func Build(ctx context.Context, dir, bin string, programs ...string) error {
	root, err := Root(ctx, dir)
	if err != nil {
		return err
	}
	return build(ctx, root, bin, nil, programs)
}

func build(ctx context.Context, root, bin string, flags, programs []string) error {
	if len(programs) == 0 {
		programs = Programs
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	args := append([]string{"build", "-o", bin + string(filepath.Separator)}, flags...)
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = root
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // as released: loading libc costs contivk8s a fifth of its start
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, tail(string(out), 20))
	}
	return nil
}

// BuildImage packs the programs of bin into an archive as a release has it, with an image for
// each architecture. The programs of the other architecture are headers, which cannot run.
// Flags are of packaging/image.
func BuildImage(ctx context.Context, bin, archive, name string, flags ...string) error {
	root, err := Root(ctx, ".")
	if err != nil {
		return err
	}
	machine := elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_X86_64
	}
	header, err := binary.Append(nil, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	})
	if err != nil {
		return err
	}
	other, err := os.MkdirTemp(filepath.Dir(archive), "other")
	if err != nil {
		return err
	}
	for _, p := range Programs {
		err = errors.Join(err, os.WriteFile(filepath.Join(other, p), header, 0o700))
	}
	if err == nil {
		c := exec.CommandContext(ctx, "go", append([]string{"run", "./packaging/image", "-bin", bin + "," + other, "-o", archive, "-name", name}, flags...)...)
		c.Dir = root
		var out []byte
		if out, err = c.CombinedOutput(); err != nil {
			err = fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return errors.Join(err, os.RemoveAll(other))
}

// Root returns the directory of the Go module around dir.
func Root(ctx context.Context, dir string) (string, error) {
	mod, err := output(ctx, dir, "go", "env", "GOMOD")
	if err != nil || mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("find the Go module around %q: there is none", dir)
	}
	return filepath.Dir(mod), nil
}

// output runs a command in a directory and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// UsePrograms has what is started from now on come from another directory, such as one
// with another version.
func (l *Lab) UsePrograms(dir string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.Config.BinDir = dir
}
