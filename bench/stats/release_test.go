package stats

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checkout is a small repository with this one's Makefile and release scripts, and with
// programs that do nothing.
type checkout struct {
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t, t.TempDir()}
	for _, pattern := range []string{
		"Makefile", "LICENSE", "internal/datapath/ebpf/bpf/LICENSE", "tools/release.sh", "tools/report-ages.sh",
		"tools/packages.sh", "tools/licences.sh", "tools/man.awk", "tools/packages/*", "packaging/packages/*", "packaging/systemd/*.*", "docs/reference/net*.md", "docs/reference/contivk8s.md",
	} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // a directory
			}
			c.write(strings.TrimPrefix(file, "../../"), string(text))
		}
	}
	c.write("VERSION", "2.3.4\n")
	c.write(".gitignore", "/dist/\n")
	c.write("go.mod", "module example.org/release\n\ngo 1.24\n")
	for _, name := range []string{"netmaster", "netplugin", "netctl", "contivk8s", "contivlab"} {
		c.write("cmd/"+name+"/main.go", "package main\n\nfunc main() {}\n")
	}
	c.run("git", "init", "-q")
	c.commit("programs")
	return c
}

func (c *checkout) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), name, args...)
	cmd.Dir = c.dir
	return cmd
}

func (c *checkout) run(name string, args ...string) string {
	c.t.Helper()
	out, err := c.command(name, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit commits all files and returns the commit.
func (c *checkout) commit(what string) string {
	c.t.Helper()
	c.run("git", "add", ".")
	c.run("git", "-c", "user.name=t", "-c", "user.email=t", "commit", "-qm", what)
	return c.run("git", "rev-parse", "--short=12", "HEAD")
}

// report writes and commits a report of the given commits.
func (c *checkout) report(name string, commits ...string) {
	c.t.Helper()
	var text strings.Builder
	for _, commit := range commits {
		fmt.Fprintf(&text, "{\n  \"commit\": %q,\n  \"date\": \"2026-01-02T03:04:05Z\"\n}\n", commit)
	}
	c.write(name, text.String())
	c.commit("report")
}

const (
	ledgerReport = "bench/results/ledger/netplugin-ebpf.json"
	matrixReport = "test/matrix/report.json"
)

// make release builds archives only of code that every report is of.
func TestReleaseRefusesReportsOfOtherCode(t *testing.T) {
	c := newCheckout(t)
	first := c.run("git", "rev-parse", "--short=12", "HEAD")
	c.report(ledgerReport, first)
	c.report(matrixReport, first)
	refuses := func(when string, names ...string) {
		t.Helper()
		out, err := c.command("make", "release").CombinedOutput()
		if err == nil {
			t.Fatalf("%s: it makes a release", when)
		}
		for _, name := range append(names, "no release") {
			if !strings.Contains(string(out), name) {
				t.Errorf("%s: it does not name %q: %s", when, name, out)
			}
		}
		if _, err := os.Stat(filepath.Join(c.dir, "dist")); err == nil {
			t.Errorf("%s: there is dist/", when)
		}
	}

	c.write("cmd/netctl/main.go", "package main\n\nfunc main() { println() }\n")
	refuses("a program is changed and not committed", "cmd/netctl/main.go")
	second := c.commit("netctl: print a line")
	refuses("a program changed", ledgerReport, "make chaos ROWS=netplugin-ebpf", matrixReport, "make test-matrix")
	c.report(ledgerReport, second)
	c.report(matrixReport, second, first)
	refuses("a row of the matrix is of older code", matrixReport)
	c.report(matrixReport, second, second+"+")
	refuses("a row of the matrix is of code that differs from its commit", matrixReport)
	c.report(matrixReport, second, "0123456789ab")
	refuses("a row of the matrix is of a commit that is not there", matrixReport)
	c.report(matrixReport)
	refuses("a report names no commit", matrixReport)
	c.report(matrixReport, second)
	c.write(ledgerReport, fmt.Sprintf("{\"commit\": %q, \"uncommitted\": true, \"date\": \"2026-01-02\"}", second))
	c.commit("report")
	refuses("a report is of uncommitted code", ledgerReport)
	c.report(ledgerReport, second)
	c.write("cmd/netctl/main_test.go", "package main\n")
	c.commit("netctl: add a test")

	c.run("make", "release")
	sums, err := os.ReadFile(filepath.Join(c.dir, "dist/SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range []string{"contiv-netmaster", "contiv-netplugin", "contiv-netctl"} {
			rpm := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
			for _, file := range []string{name + "_2.3.4_" + arch + ".deb", name + "-2.3.4-1." + rpm + ".rpm"} {
				if !strings.Contains(string(sums), "  "+file+"\n") {
					t.Errorf("no checksum of %s: %s", file, sums)
				}
			}
		}
		sbom := c.run("cat", "dist/contiv-netctl-2.3.4-linux-"+arch+".cdx.json")
		if !strings.Contains(sbom, `"version": "2.3.4"`) || !strings.Contains(sbom, "goarch="+arch) {
			t.Errorf("what netctl is made of: %s", sbom)
		}
		name := "contiv-2.3.4-linux-" + arch
		if !strings.Contains(string(sums), "  "+name+".tar.gz\n") {
			t.Errorf("no checksum of %s: %s", name, sums)
		}
		list := c.run("tar", "-tzf", "dist/"+name+".tar.gz")
		for _, file := range []string{"netmaster", "netplugin", "netctl", "contivk8s", "contivlab", "LICENSE", "LICENSE.ebpf", "LICENSE.modules"} {
			if !strings.Contains(list+"\n", name+"/"+file+"\n") {
				t.Errorf("%s has no %s: %s", name, file, list)
			}
		}
	}
	other := &checkout{t, filepath.Join(t.TempDir(), "clone")}
	c.run("git", "clone", "-q", c.dir, other.dir)
	other.run("make", "release")
	again, err := os.ReadFile(filepath.Join(other.dir, "dist/SHA256SUMS"))
	if err != nil || string(again) != string(sums) {
		t.Errorf("another clone makes other bytes, %v:\n%s%s", err, again, sums)
	}
}
