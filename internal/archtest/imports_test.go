package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// moduleRoot returns the directory of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(run(t, ".", "go", "list", "-m", "-f", "{{.Dir}}"))
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// packages lists the module's packages that have files outside tests, by path
// relative to the module.
func packages(t *testing.T) map[string]listed {
	t.Helper()
	out := run(t, moduleRoot(t), "go", "list", "-e", "-json=ImportPath,Name,Dir,GoFiles,Imports,Deps", "./...")
	found := map[string]listed{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		if len(p.GoFiles) > 0 {
			found[strings.TrimPrefix(p.ImportPath, module)] = p
		}
	}
}

// matches reports whether a package falls under a pattern of a rule.
func matches(pattern, pkg string) bool {
	if below, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(pkg, below)
	}
	return pattern == pkg
}

func ruleFor(pkg string) *rule {
	for i, r := range rules {
		if matches(r.pkg, pkg) {
			return &rules[i]
		}
	}
	return nil
}

// within reports whether both packages belong to one concrete implementation,
// such as internal/datapath/ovs and internal/datapath/ovs/openflow.
func within(a, b string) bool {
	of := func(pkg string) string {
		return strings.Join(strings.SplitN(pkg, "/", 4)[:min(3, strings.Count(pkg, "/")+1)], "/")
	}
	return of(a) == of(b) && strings.Count(of(a), "/") == 2
}

// testOnly packages are conformance suites, and what is around tests.
func testOnly(pkg string) bool {
	return strings.HasPrefix(pkg, "internal/") && (strings.HasSuffix(pkg, "test") || path.Base(pkg) == "testenv")
}

// violations says which imports the rules forbid.
func violations(pkgs map[string]listed) []string {
	var bad []string
	for pkg, p := range pkgs {
		r := ruleFor(pkg)
		if r == nil {
			bad = append(bad, pkg+" has no rule: add one to rules_test.go, with its reason")
			continue
		}
		for _, path := range p.Imports {
			target, ours := strings.CutPrefix(path, module)
			switch {
			case !ours:
			case testOnly(target) && !testOnly(pkg):
				bad = append(bad, pkg+" imports "+target+", which is for tests only")
			case r.free || within(pkg, target) || slices.ContainsFunc(r.may, func(m string) bool { return matches(m, target) }):
			default:
				bad = append(bad, pkg+" must not import "+target+": "+r.why)
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// Every import between packages of the module is one that the rules allow.
func TestImportsFollowTheRules(t *testing.T) {
	for _, v := range violations(packages(t)) {
		t.Error(v)
	}
}

// What both programs need is in neither of them.
func TestProgramsDoNotImportEachOther(t *testing.T) {
	const netmaster, netplugin = "internal/netmaster/", "internal/netplugin/"
	seen := map[string]bool{}
	for pkg, p := range packages(t) {
		for from, to := range map[string]string{netmaster: netplugin, netplugin: netmaster} {
			if !strings.HasPrefix(pkg, from) {
				continue
			}
			seen[from] = true
			for _, path := range p.Imports {
				if strings.HasPrefix(path, module+to) {
					t.Errorf("%s imports %s", pkg, path)
				}
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("packages of %v are seen only", seen)
	}
}

// The checker itself finds what it is there for, and lets pass what is right.
func TestCheckerFindsViolations(t *testing.T) {
	for _, tc := range []struct {
		pkg, target string
		bad         bool
	}{
		{"internal/netplugin/agent", "internal/netmaster/control", true},
		{"internal/netplugin/agent", "internal/store", false},
		{"internal/netplugin/agent", "internal/store/tables", false},
		{"internal/netplugin/agent", "internal/store/etcd", true},
		{"internal/netplugin/agent", "internal/store/memory", true},
		{"internal/store", "internal/store/engine", true},
		{"internal/store/etcd", "internal/store/engine", false},
		{"internal/store/tables", "internal/store/engine", true},
		{"internal/netplugin/agent", "internal/netplugin/attach/vethpair", false},
		{"internal/netmaster/control", "api", true},
		{"internal/datapath/compile", "internal/store", true},
		{"internal/datapath/driver", "internal/datapath/ovs", true},
		{"internal/datapath/ovs", "internal/datapath/ovs/openflow", false},
		{"internal/datapath/ovs/openflow", "internal/datapath/ovs", false},
		{"internal/datapath/ovs/pipeline", "internal/datapath/ovs/openflow", false},
		{"internal/datapath/ebpf", "internal/datapath/ovs", true},
		{"internal/store/etcd", "internal/store/storetest", true},
		{"internal/store/storetest", "internal/store/etcd", true},
		{"internal/netctl", "internal/model", true},
		{"internal/model", "api", true},
		{"cmd/netplugin", "internal/datapath/ovs", false},
		{"internal/util", "internal/model", true},
	} {
		got := violations(map[string]listed{tc.pkg: {Imports: []string{"fmt", module + tc.target}}})
		if (len(got) > 0) != tc.bad {
			t.Errorf("%s imports %s: violations %q", tc.pkg, tc.target, got)
		}
	}
}

// The rules speak of packages that exist.
func TestRulesAreLive(t *testing.T) {
	found := packages(t)
	// Suites have test files only, so go list's GoFiles do not show them.
	suites := strings.Fields(run(t, moduleRoot(t), "git", "ls-files", "test", "bench"))
	exists := func(pattern string) bool {
		for pkg := range found {
			if matches(pattern, pkg) {
				return true
			}
		}
		return slices.ContainsFunc(suites, func(f string) bool {
			return strings.HasSuffix(pattern, "*") && matches(pattern, f) && strings.HasSuffix(f, ".go")
		})
	}
	patterns := map[string]bool{}
	for _, r := range rules {
		if r.why == "" {
			t.Errorf("the rule for %s says no reason", r.pkg)
		}
		for _, p := range append([]string{r.pkg}, r.may...) {
			patterns[p] = true
		}
	}
	for p := range standardOnly {
		patterns[p] = true
	}
	for _, u := range unlinked {
		patterns[u.binary] = true
		if p, ours := strings.CutPrefix(u.prefix, module); ours {
			patterns[p] = true
		}
	}
	for p := range patterns {
		if !exists(p) {
			t.Errorf("a rule names %s, which does not exist", p)
		}
	}
}

// Some packages need the standard library only.
func TestStandardLibraryOnly(t *testing.T) {
	found := packages(t)
	for pkg, why := range standardOnly {
		for _, path := range found[pkg].Imports {
			host, _, _ := strings.Cut(path, "/")
			if strings.Contains(host, ".") && !strings.HasPrefix(path, module) {
				t.Errorf("%s must not import %s: %s", pkg, path, why)
			}
		}
	}
}

// TestImportedByFew: some libraries are imported by the packages that need them alone.
func TestImportedByFew(t *testing.T) {
	for pkg, p := range packages(t) {
		for _, path := range p.Imports {
			for _, r := range importedBy {
				if strings.HasPrefix(path, r.prefix) && !slices.ContainsFunc(r.may, func(m string) bool { return matches(m, pkg) }) {
					t.Errorf("%s must not import %s: %s", pkg, path, r.why)
				}
			}
		}
	}
}

// Binaries do not contain what they must not.
func TestProgramsDoNotLinkForbiddenPackages(t *testing.T) {
	found := packages(t)
	for _, u := range unlinked {
		for _, dep := range found[u.binary].Deps {
			if strings.HasPrefix(dep, u.prefix) {
				t.Errorf("%s links %s: %s", u.binary, dep, u.why)
				break
			}
		}
	}
}
