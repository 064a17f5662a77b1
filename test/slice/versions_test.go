//go:build integration

package slice

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// versionBeforeIs is the version beside which this one runs.
var versionBeforeIs = flag.String("before", "", "the commit whose programs run beside these in TestVersionsWorkSideBySide; empty = with -full the hundredth before this one, without it is skipped")

// TestVersionsWorkSideBySide: a cluster of the version before, of which one netmaster and one host
// are exchanged for this one. With both netmasters, with the new one alone and with the
// old one alone, groups, policies and rules that are made through them count on both
// hosts, for containers that are attached there then.
func TestVersionsWorkSideBySide(t *testing.T) {
	if *versionBeforeIs == "" && !conformance.Full() {
		t.Skip("it builds the version before, which takes minutes: -full, or -before COMMIT")
	}
	shared(t)
	old := versionBefore(t)
	onOne(t, both, func(t *testing.T, driver string) { twoVersions(t, driver, old) })
}

// versionBefore builds the programs of the version before.
func versionBefore(t *testing.T) (dir string) {
	t.Helper()
	if *versionBeforeIs == "" {
		return programsOf(t, "HEAD~100", true)
	}
	return programsOf(t, *versionBeforeIs, false)
}

// programsOf builds the programs of a commit. An optional commit that this clone does not
// have skips the test.
func programsOf(t *testing.T, commit string, optional bool) (dir string) {
	t.Helper()
	root, err := testcluster.Root(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	archive := filepath.Join(source, "source.tar")
	git := exec.CommandContext(t.Context(), "git", "-C", root, "archive", "-o", archive, commit)
	if out, err := git.CombinedOutput(); err != nil {
		if optional {
			t.Skipf("this clone has no %s, so there is no version before: %s", commit, out)
		}
		t.Fatalf("git archive %s: %v\n%s", commit, err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", source, "-xf", archive).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	dir = filepath.Join(source, "bin-before")
	if err := testcluster.Build(t.Context(), source, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func twoVersions(t *testing.T, driver, old string) {
	c := pairUp(t, driver, "vers", func(cfg *testcluster.Config) { cfg.BinDir, cfg.Replicas = old, 2 })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// start starts a netmaster of a version.
	start := func(n int, programs string) {
		t.Helper()
		c.UsePrograms(programs)
		must(c.Masters.StartReplica(t.Context(), n))
		c.UsePrograms(old) // of netctl and contivk8s, which may be older than what they ask
	}
	stop := func(name string) {
		t.Helper()
		must(c.Process(name).Stop(30 * time.Second))
	}
	stop("netmaster")
	start(1, bin)
	h1 := c.host("h1")
	must(h1.Agent().Stop(30 * time.Second))
	c.UsePrograms(bin)
	must(h1.StartAgent(t.Context()))
	c.UsePrograms(old)
	for _, line := range []string{"c s tcp/80", "c near tcp/80"} {
		c.wants(line, testcluster.OK)
	}
	for n, stage := range []struct {
		name  string
		begin func()
	}{
		{"both", func() {}},
		{"the new one alone", func() { stop("netmaster2") }},
		{"the old one alone", func() { start(2, old); stop("netmaster") }},
		{"the new one again", func() { start(1, bin); stop("netmaster2") }},
	} {
		stage.begin()
		g, a, b := fmt.Sprint("g", n), fmt.Sprint("a", n), fmt.Sprint("b", n)
		c.netctl(
			"policy create -t blue "+g,
			"policy rule-add -t blue -d in -p 1 -j deny "+g+" 1",
			"policy rule-add -t blue -d in -p 10 -g clients -j allow "+g+" 2",
			"group create -t blue -p "+g+" net "+g,
		)
		c.add(spec(a, "h1", "blue/net/"+g), spec(b, "h2", "blue/net/"+g))
		c.wants("c "+a+" tcp/80", testcluster.OK)
		c.wants("c "+b+" tcp/80", testcluster.OK)
		c.denied(stage.name, "s "+a+" tcp/80", "near "+b+" tcp/80")
		c.netctl("policy rule-rm -t blue " + g + " 2")
		c.wants("c "+a+" tcp/80", testcluster.Denied)
		c.wants("c "+b+" tcp/80", testcluster.Denied)
		if n > 0 { // what was made through the other version is changed through this one
			was := fmt.Sprint("g", n-1)
			c.netctl("policy rule-add -t blue -d in -p 10 -g clients -j allow " + was + " 2")
			c.wants("c "+fmt.Sprint("a", n-1)+" tcp/80", testcluster.OK)
			c.wants("c "+fmt.Sprint("b", n-1)+" tcp/80", testcluster.OK)
		}
		if t.Failed() {
			t.Fatalf("with %s netmaster", stage.name)
		}
	}
}
