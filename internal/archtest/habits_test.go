package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxLines = 500

// file is a tracked file of the module.
type file struct {
	name string // relative to the module's root, with slashes
	text string
}

func (f file) isGo() bool   { return strings.HasSuffix(f.name, ".go") }
func (f file) isC() bool    { return strings.HasSuffix(f.name, ".c") || strings.HasSuffix(f.name, ".h") }
func (f file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// isMain reports whether the file is part of a program; programs live in cmd, bench,
// packaging and test.
func (f file) isMain() bool {
	return regexp.MustCompile(`^(cmd|bench|packaging|test)/`).MatchString(f.name) && regexp.MustCompile(`(?m)^package main$`).MatchString(f.text)
}

// generated files carry the line that `go help generate` asks for.
func (f file) generated() bool {
	return regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`).MatchString(f.text)
}

// files returns the tracked text files of the repository.
func files(t *testing.T) []file {
	t.Helper()
	root := moduleRoot(t)
	var all []file
	for name := range strings.SplitSeq(strings.TrimRight(run(t, root, "git", "ls-files", "-z"), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if os.IsNotExist(err) { // deleted, not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data[:min(len(data), 8000)]), "\x00") {
			all = append(all, file{name, string(data)})
		}
	}
	if len(all) == 0 {
		t.Fatal("git lists no files")
	}
	return all
}

// maxComment is how many lines a package comment has at most.
const maxComment = 7

// packageSays is how the sentences of a package comment begin, beside the one that says
// what the package is. The comment of a command has only that one, and where to start.
var packageSays = []string{"It guarantees ", "It must not ", "It is called by "}

// startWith finds where to start: a file below the package's directory, or what it declares.
var startWith = regexp.MustCompile(`\bStart with ([\w./-]*\w)`)

// Every package says in doc.go, in a few lines, what it is, what it guarantees, what it
// must not do, who calls it and where to start; commands may say it at their main.
func TestPackagesSayWhatTheyAre(t *testing.T) {
	docs, sources, programs, names := map[string]file{}, map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, f := range files(t) {
		names[f.name] = true
		if !f.isGo() || strings.Contains(f.name, "testdata/") || strings.HasPrefix(f.name, "tools/") {
			continue
		}
		dir := path.Dir(f.name)
		sources[dir] += f.text
		programs[dir] = programs[dir] || f.isMain()
		if base := path.Base(f.name); base == "doc.go" || base == "main.go" && f.isMain() && docs[dir].name == "" {
			docs[dir] = f
		}
	}
	for dir, source := range sources {
		f, found := docs[dir]
		if !found {
			t.Errorf("%s: no doc.go", dir)
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.name, f.text, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(tree.Doc.Text(), "\n"); n > maxComment {
			t.Errorf("%s: the package comment has %d lines, %d are allowed", f.name, n, maxComment)
		}
		text, begin, says := strings.Join(strings.Fields(tree.Doc.Text()), " "), "Package "+tree.Name.Name+" ", packageSays
		if programs[dir] {
			begin, says = "Command "+path.Base(dir)+" ", nil
		}
		if !strings.HasPrefix(text, begin) {
			t.Errorf("%s: the package comment does not begin with %q", f.name, begin)
		}
		for _, s := range says {
			if !strings.Contains(text, s) {
				t.Errorf("%s: the package comment lacks a sentence that begins with %q", f.name, s)
			}
		}
		start := startWith.FindStringSubmatch(text)
		if start == nil {
			t.Errorf("%s: the package comment lacks a sentence that begins with %q", f.name, "Start with ")
			continue
		}
		name := start[1][strings.LastIndex(start[1], ".")+1:]
		declaration := regexp.MustCompile(`(?m)^(type |func |func \([^)]*\) |\t)` + name + `\b`)
		if !names[path.Join(dir, start[1])] && !declaration.MatchString(source) {
			t.Errorf("%s: the package comment says to start with %s, which is not there", f.name, start[1])
		}
	}
}

// A file is one thing: at most 500 lines, unless a program wrote it.
func TestFilesAreShort(t *testing.T) {
	for _, f := range files(t) {
		if n := strings.Count(f.text, "\n"); (f.isGo() || f.isC()) && n > maxLines && !f.generated() {
			t.Errorf("%s has %d lines, %d are allowed", f.name, n, maxLines)
		}
	}
}

// minPackage is how many lines a package of the programs has at least; a smaller one is part
// of its user or of a sibling.
const minPackage = 150

// smallPackages are exceptions, with their reasons.
var smallPackages = map[string]string{
	"cmd/internal/clusterstore":         "both programs have its flags, and only cmd may choose a store",
	"internal/base/checksum":            "a driver and two packages of netplugin sum headers, and share no package that knows any",
	"internal/base/durable":             "contivk8s links it, which has to stay small",
	"internal/netplugin/runtimes/mesos": "each runtime is a package",
}

// Packages are not so small that a reader opens many to find one thing.
func TestPackagesHaveASize(t *testing.T) {
	lines := map[string]int{}
	for _, f := range files(t) {
		if dir := path.Dir(f.name); f.isGo() && !f.isTest() && !f.isMain() && !testOnly(dir) && regexp.MustCompile(`^(bench|cmd|internal)/`).MatchString(dir) && !strings.Contains(dir, "testdata") {
			lines[dir] += strings.Count(f.text, "\n")
		}
	}
	for dir, n := range lines {
		if reason := smallPackages[dir]; n < minPackage && reason == "" {
			t.Errorf("%s has %d lines, fewer than %d: move it into a package that uses it, or into a sibling", dir, n, minPackage)
		} else if n >= minPackage && reason != "" {
			t.Errorf("%s has %d lines, and is still an exception", dir, n)
		}
	}
	for dir := range smallPackages {
		if lines[dir] == 0 {
			t.Errorf("%s is an exception, and does not exist", dir)
		}
	}
}

// Packages return errors: only commands and tests end the process.
func TestOnlyCommandsExit(t *testing.T) {
	banned := map[string][]string{
		"os":      {"Exit"},
		"log":     {"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
		"runtime": {"Goexit"},
	}
	for _, f := range files(t) {
		if !f.isGo() || f.isTest() || f.isMain() || strings.Contains(f.name, "testdata/") {
			continue
		}
		eachCall(t, f, func(pos, pkg, name string) {
			if slices.Contains(banned[pkg], name) || pkg == "" && name == "panic" {
				t.Errorf("%s: %s ends the process; return an error", pos, strings.TrimPrefix(pkg+"."+name, "."))
			}
		})
	}
}

// Contexts carry deadlines only: what a call depends on, and what it results in, is typed.
func TestContextsCarryNoValues(t *testing.T) {
	for _, f := range files(t) {
		if !f.isGo() || f.isTest() {
			continue
		}
		eachCall(t, f, func(pos, pkg, name string) {
			if pkg == "context" && name == "WithValue" {
				t.Errorf("%s: a value in a context; make it a parameter or a result", pos)
			}
		})
	}
}

// A test waits for a condition with a deadline, or injects a clock. In a bubble
// of testing/synctest time is such a clock, and sleeping moves it.
func TestNoSleepInTests(t *testing.T) {
	for _, f := range files(t) {
		if !f.isTest() || strings.Contains(f.text, `"testing/synctest"`) {
			continue
		}
		eachCall(t, f, func(pos, pkg, name string) {
			if pkg == "time" && name == "Sleep" {
				t.Errorf("%s: time.Sleep in a test", pos)
			}
		})
	}
}

// eachCall visits the calls of f that name a function directly or by its
// package; the package of a method call is the variable's name.
func eachCall(t *testing.T, f file, visit func(pos, pkg, name string)) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, f.name, f.text, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%s: %v", f.name, err)
		return
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			visit(fset.Position(call.Pos()).String(), "", fun.Name)
		case *ast.SelectorExpr:
			if x, ok := fun.X.(*ast.Ident); ok {
				visit(fset.Position(call.Pos()).String(), x.Name, fun.Sel.Name)
			}
		}
		return true
	})
}

// Every command line is parsed by the standard library's flag (ADR 10).
func TestOneFlagParser(t *testing.T) {
	others := regexp.MustCompile(`"github\.com/(spf13/(pflag|cobra)|urfave/cli|alecthomas/(kong|kingpin)|jessevdk/go-flags)[/"]`)
	for _, f := range files(t) {
		if f.isGo() && !strings.HasPrefix(f.name, "tools/") && others.MatchString(f.text) {
			t.Errorf("%s imports another flag parser", f.name)
		}
	}
}

// What is tracked works on any machine and is finished.
func TestTrackedTextIsPortableAndFinished(t *testing.T) {
	// Written so that this file does not match itself.
	machinePath := regexp.MustCompile(`(^|[^a-zA-Z.])/(wor` + `k|far` + `m)/`)
	unfinished := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	for _, f := range files(t) {
		if path.Base(f.name) == "go.sum" {
			continue
		}
		n := 0
		for line := range strings.Lines(f.text) {
			n++
			if machinePath.MatchString(line) {
				t.Errorf("%s:%d: a path of one machine: %s", f.name, n, strings.TrimSpace(line))
			}
			if f.isGo() && unfinished.MatchString(line) {
				t.Errorf("%s:%d: unfinished: %s", f.name, n, strings.TrimSpace(line))
			}
		}
	}
}

// Every entry of the changelog carries one of its tags.
func TestChangelogEntriesHaveTags(t *testing.T) {
	tag := regexp.MustCompile(`^- \[(CHANGE|FEATURE|ENHANCEMENT|PERF|BUGFIX|SECURITY)\] `)
	for _, f := range files(t) {
		if f.name != "CHANGELOG.md" {
			continue
		}
		for line := range strings.Lines(f.text) {
			if strings.HasPrefix(line, "- ") && !tag.MatchString(line) {
				t.Errorf("CHANGELOG.md: no tag: %s", line)
			}
		}
	}
}

// The Makefile stays readable at one sitting.
func TestMakefileIsShort(t *testing.T) {
	for _, f := range files(t) {
		if n := strings.Count(f.text, "\n"); f.name == "Makefile" && n > 100 {
			t.Errorf("the Makefile has %d lines, 100 are allowed", n)
		}
	}
}

// A program that a supervisor or timeout(1) ends cleans up as for an interrupt.
func TestProgramsCleanUpOnSignals(t *testing.T) {
	heeds := regexp.MustCompile(`signal\.NotifyContext\((.*)\)`)
	for _, f := range files(t) {
		if !f.isGo() || f.isTest() {
			continue
		}
		for _, m := range heeds.FindAllStringSubmatch(f.text, -1) {
			if !strings.Contains(m[1], "SIGTERM") {
				t.Errorf("%s: %s does not heed SIGTERM", f.name, m[0])
			}
		}
	}
}
