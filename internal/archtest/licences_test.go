package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLicencesOfModulesAllowDistribution: what our programs are made of may be passed on, and a module under another
// licence, or under none, is found.
func TestLicencesOfModulesAllowDistribution(t *testing.T) {
	root := moduleRoot(t)
	list := func(dir string, packages ...string) (stdout, stderr string, err error) {
		c := exec.CommandContext(t.Context(), filepath.Join(root, "tools/licences.sh"), packages...)
		var out, bad strings.Builder
		c.Dir, c.Stdout, c.Stderr = dir, &out, &bad
		err = c.Run()
		return out.String(), bad.String(), err
	}
	if out, why, err := list(root, "./cmd/..."); err != nil || !strings.Contains(out, "\n== github.com/cilium/ebpf ") || !strings.Contains(out, ": MIT\n") {
		t.Errorf("%v: %s", err, why)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.org/app\n\ngo 1.24\n\nrequire example.org/dep v1.0.0\n\nreplace example.org/dep => ./dep\n",
		"main.go":    "package main\n\nimport _ \"example.org/dep\"\n\nfunc main() {}\n",
		"dep/go.mod": "module example.org/dep\n", "dep/dep.go": "package dep\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "licences.sh: example.org/dep v1.0.0 "
	if _, why, err := list(dir, "."); err == nil || !strings.HasPrefix(why, want+"has no licence") {
		t.Errorf("a module without a licence: %v: %s", err, why)
	}
	if err := os.WriteFile(filepath.Join(dir, "dep/LICENSE"), []byte("GNU GENERAL PUBLIC LICENSE\nVersion 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, why, err := list(dir, "."); err == nil || why != want[:len(want)-1]+": LICENSE is no licence that is allowed\n" {
		t.Errorf("a module under another licence: %v: %s", err, why)
	}
}
