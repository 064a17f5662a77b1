package testcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
