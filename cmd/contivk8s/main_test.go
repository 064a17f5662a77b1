package main

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/archtest"
	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

var update = flag.Bool("update", false, "rewrite testdata/deps.txt and docs/reference/contivk8s.md")

// TestPluginLinksTheListedPackagesOnly holds the list of packages that the plugin links: a runtime
// starts it for every verb, so it stays small. A change of the list is a
// decision; -update writes it down.
func TestPluginLinksTheListedPackagesOnly(t *testing.T) {
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/deps.txt"
	if *update {
		if err := os.WriteFile(file, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(out)); diff != "" {
		t.Errorf("packages linked (-listed +linked); go test -update accepts them:\n%s", diff)
	}
}

// TestPluginLinksNoHTTP: net/http and crypto/tls would double the plugin's start.
func TestPluginLinksNoHTTP(t *testing.T) {
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"net/http", "crypto/tls"} {
		if strings.Contains("\n"+string(out), "\n"+p+"\n") {
			t.Errorf("the plugin links %s", p)
		}
	}
}

// TestVersionTellsTheBuild: -version tells the build, in lines that scripts may read.
func TestVersionTellsTheBuild(t *testing.T) {
	for _, want := range []string{"Version: ", "GitCommit: ", "BuildTime: "} {
		if !strings.Contains(versionText(), want) {
			t.Errorf("%q lacks %q", versionText(), want)
		}
	}
}

// TestReferencePageIsTheHelp: the page says what -help prints.
func TestReferencePageIsTheHelp(t *testing.T) {
	p := &pagetest.Page{
		Name: "contivk8s.md", Command: "go test ./cmd/contivk8s -run TestReferencePageIsTheHelp -update", Title: "contivk8s",
		Purpose: "On this page you look up how contivk8s is called; [CNI](../how-to/cni.md) explains its configuration.",
	}
	p.Printf("\n```text\n%s```\n", usage)
	p.Check(t, *update)
}

// TestEveryFlagHasEffect: the flags are few; a runtime uses the environment.
func TestEveryFlagHasEffect(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	var accepted []string
	for _, m := range regexp.MustCompile(`case "(-[^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		accepted = append(accepted, m[1])
	}
	archtest.CheckEffects(t, "this test", accepted, map[string]archtest.Effect{
		"-version": archtest.By("TestVersionTellsTheBuild"), "-h": archtest.By("TestPluginLinksNoHTTP"),
	}, nil, nil)
}
