package stats

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"Makefile", "LICENSE", "internal/datapath/ebpf/bpf/LICENSE", "tools/release.sh", "tools/pack.sh", "tools/report-ages.sh",
		"packaging/image/*.go", "packaging/docker-plugin/*", "packaging/kubernetes/*.yaml", "packaging/kubernetes/chart/*", "packaging/kubernetes/chart/*/*",
		"tools/packages.sh", "tools/licences.sh", "tools/man.awk", "tools/packages/*", "packaging/packages/*", "packaging/systemd/*.*", "docs/reference/net*.md", "docs/reference/contivk8s.md",
	} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || strings.HasSuffix(file, "_test.go") {
				continue // a directory, or a test that needs modules
			}
			if strings.Contains(file, "packaging/kubernetes/") {
				text = bytes.ReplaceAll(text, []byte("2.0.0"), []byte("2.3.4"))
			}
			c.write(strings.TrimPrefix(file, "../../"), string(text))
		}
	}
	c.write("VERSION", "2.3.4\n")
	c.write(".gitignore", "/dist/\n")
	c.write("go.mod", "module example.org/release\n\ngo 1.24\n")
	c.write("tools/site.sh", "#!/bin/sh\necho pages >\"$1/contiv-docs-$(cat VERSION).tar.gz\"\n") // the real one needs npm: make docs
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

// isRelease checks that dist/ has what docs/design/releasing.md lists, that the checksums are
// of all of it, and that the signature is the key's.
func (c *checkout) isRelease(key string) {
	c.t.Helper()
	const v = "2.3.4"
	want := []string{
		"SHA256SUMS", "SHA256SUMS.sig", "contiv-image-" + v + ".tar", "contiv-image-netmaster-" + v + ".tar",
		"contiv-chart-" + v + ".tgz", "contiv-kubernetes-" + v + ".tar.gz", "contiv-docs-" + v + ".tar.gz",
	}
	manifests := "contiv-kubernetes-" + v + "/"
	tars := map[string][]string{
		"contiv-chart-" + v + ".tgz":         {"contiv/Chart.yaml", "contiv/crds/crds.yaml", "contiv/templates/_helpers.tpl"},
		"contiv-kubernetes-" + v + ".tar.gz": {manifests + "contiv.yaml", manifests + "uninstall.yaml", manifests + "crds.yaml", manifests + "admission.yaml", manifests + "netmaster-rbac.yaml"},
	}
	for arch, rpm := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		for _, program := range []string{"netmaster", "netplugin", "netctl"} {
			want = append(want, "contiv-"+program+"_"+v+"_"+arch+".deb", "contiv-"+program+"-"+v+"-1."+rpm+".rpm")
		}
		name, plugin := "contiv-"+v+"-linux-"+arch, "contiv-plugin-"+v+"-linux-"+arch
		for _, program := range []string{"netmaster", "netplugin", "netctl", "contivk8s", "contivlab"} {
			list := "contiv-" + program + "-" + v + "-linux-" + arch + ".cdx.json"
			if text := c.run("cat", "dist/"+list); !strings.Contains(text, `"version": "`+v+`"`) || !strings.Contains(text, "goarch="+arch) {
				c.t.Errorf("what %s is made of: %s", program, text)
			}
			want = append(want, list)
			tars[name+".tar.gz"] = append(tars[name+".tar.gz"], name+"/"+program)
		}
		for _, file := range []string{"LICENSE", "LICENSE.ebpf", "LICENSE.modules"} {
			tars[name+".tar.gz"] = append(tars[name+".tar.gz"], name+"/"+file)
			tars[plugin+".tar.gz"] = append(tars[plugin+".tar.gz"], plugin+"/rootfs/"+file)
		}
		tars[plugin+".tar.gz"] = append(tars[plugin+".tar.gz"], plugin+"/config.json", plugin+"/rootfs/netplugin")
		want = append(want, name+".tar.gz", plugin+".tar.gz")
	}
	files, err := filepath.Glob(filepath.Join(c.dir, "dist", "*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, files); diff != "" {
		c.t.Errorf("dist has other files: %s", diff)
	}
	for archive, names := range tars {
		list := strings.Fields(c.run("tar", "-tzf", "dist/"+archive))
		for _, name := range names {
			if !slices.Contains(list, name) {
				c.t.Errorf("%s has no %s: %s", archive, name, list)
			}
		}
	}
	for _, name := range []string{"contiv", "netmaster"} {
		archive := map[string]string{"contiv": "dist/contiv-image-" + v + ".tar", "netmaster": "dist/contiv-image-netmaster-" + v + ".tar"}[name]
		for _, arch := range []string{"amd64", "arm64"} {
			if list := c.run("tar", "-xOf", archive, "manifest.json"); !strings.Contains(list, `"docker.io/contiv/`+name+":"+v+"-"+arch+`"`) {
				c.t.Errorf("%s lacks the image for %s: %s", archive, arch, list)
			}
		}
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		c.t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/how-to/install.md")
	if err != nil {
		c.t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(page), "<!-- run: verify -->\n```sh\n")
	steps, _, _ = strings.Cut(steps, "```")
	verify := func() (string, error) {
		cmd := c.command("bash", "-euc", strings.Replace(steps, "ssh-ed25519 AAAA...", strings.TrimSpace(string(public)), 1))
		cmd.Dir = filepath.Join(c.dir, "dist")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := verify(); err != nil || strings.Count(out, ": OK\n") != len(want)-2 || !strings.Contains(out, `Good "contiv-release" signature`) {
		c.t.Errorf("the release is not verified: %v\n%s", err, out)
	}
	sums := c.run("cat", "dist/SHA256SUMS")
	c.write("dist/SHA256SUMS", sums+"\n\n")
	if out, err := verify(); err == nil {
		c.t.Errorf("the signature is of other checksums too: %s", out)
	}
	c.write("dist/SHA256SUMS", sums+"\n")
}

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

	c.write("VERSION", "2.3.5\n")
	c.commit("VERSION: 2.3.5")
	refuses("the chart is of another version", "go generate ./packaging/kubernetes")
	c.run("git", "reset", "-q", "--hard", "HEAD^")
	key := filepath.Join(t.TempDir(), "key")
	t.Setenv("RELEASE_KEY", key)
	refuses("there is no key", "RELEASE_KEY", key)

	c.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	c.run("make", "release")
	c.isRelease(key)
	sums := c.run("cat", "dist/SHA256SUMS")
	t.Setenv("RELEASE_KEY", "")
	other := &checkout{t, filepath.Join(t.TempDir(), "clone")}
	c.run("git", "clone", "-q", c.dir, other.dir)
	if out := other.run("make", "release"); !strings.Contains(out, "unsigned") {
		t.Errorf("it does not say that it has no signature: %s", out)
	}
	if again := other.run("cat", "dist/SHA256SUMS"); again != sums {
		t.Errorf("another clone makes other bytes:\n%s\n%s", again, sums)
	}
}
