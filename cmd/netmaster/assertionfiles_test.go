package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netctl"
)

// TestAssertionsOfFilesAreTestedByTheProgram: 'netctl assertion test -f' starts the built program,
// which takes the flags, and leaves nothing behind.
func TestAssertionsOfFilesAreTestedByTheProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds and runs the binary")
	}
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	temp, file := t.TempDir(), filepath.Join(t.TempDir(), "f.yaml")
	t.Setenv("PATH", filepath.Dir(program)+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", temp)
	const text = `
{kind: tenant, tenantName: blue}
---
{kind: network, tenantName: blue, networkName: n, encap: vxlan, subnet: 10.1.1.0/24}
---
{kind: assertion, tenantName: blue, assertionName: open, verdict: always, from: network:n, to: network:n}
---
{kind: assertion, tenantName: blue, assertionName: closed, verdict: never, from: internet, to: network:n}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := netctl.Run(t.Context(), netctl.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}, []string{"assertion", "test", "-f", file, "-q"})
	if code != netctl.ExitDenied || out.String() != "blue:closed broken\nblue:open holds\n" {
		t.Errorf("exit code %d: %s %s", code, &out, &errs)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
