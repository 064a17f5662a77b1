package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const program = `package p

var table = []string{"a", "bc"}

type list[T any] []T

func (list[T]) has(_ int, keep func(T) bool, of ...T) bool {
	for _, x := range of {
		if keep(x) {
			return true
		}
	}
	return false
}

func same[T comparable](a, b T) (equal bool) { return a == b }

func length(at int, _ string) (n int) {
	defer func() {
		if recover() != nil {
			n = 1
		}
	}()
	return len(table[at])
}

func loose(a bool) bool {
	n := 0
	use(n)
	if a {
		return true
	}
	return false
}

func both(int, string) int { return 2 - 1 }

func use(int) {}
`

const programTest = `package p

import "testing"

func TestAll(t *testing.T) {
	one := func(n int) bool { return n == 1 }
	if l := (list[int]{}); !l.has(0, one, 2, 1) || l.has(0, one, 2) || !same(1, 1) || same(1, 2) || length(1, "") != 2 || length(2, "") != 1 || both(0, "") != 1 || !loose(true) {
		t.Fail()
	}
}
`

// judged returns the verdicts that tests give on mutants of a program, by line and change.
func judged(t *testing.T, tests string) (map[string]verdict, outcome, error) {
	t.Helper()
	tree := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module p\n\ngo 1.24\n", "p/p.go": program, "p/p_test.go": tests} {
		if err := os.MkdirAll(filepath.Join(tree, "p"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{"init -q", "add -A", "-c user.name=n -c user.email=e commit -q -m m"} {
		if out, err := command(t.Context(), tree, "git", strings.Fields(args)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	j := &judge{tree: tree, dir: "p", tests: []string{"./p"}, only: regexp.MustCompile("."), report: &report{verdicts: map[string]verdict{}}, over: func() bool { return false }}
	var sum outcome
	err := j.all(t.Context(), &sum)
	if out, _ := command(t.Context(), tree, "git", "status", "--porcelain"); len(out) > 0 {
		t.Errorf("it leaves changes:\n%s", out)
	}
	found := map[string]verdict{}
	for key, v := range j.report.verdicts {
		parts := strings.Split(key, "\t")
		found[parts[1]+" | "+parts[2]] = v
	}
	return found, sum, err
}

// TestMethodsAndGenericsAreMutated: mutants of methods, of generic functions and of parameters without a name are
// tried like others, and so are mutants that no copy of a function can hold.
func TestMethodsAndGenericsAreMutated(t *testing.T) {
	found, sum, err := judged(t, programTest)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]verdict{
		"use(n) | column 2: use(n) -> _ = 0":                    broken,
		"if a { | column 5: a -> (a) || true":                   survived,
		"return false (2) | column 9: false -> true":            survived,
		`var table = []string{"a", "bc"} | column 22: "a", -> `: killed,
		"n = 1 | column 4: n = 1 -> _ = 1":                      killed,
	}
	for key, v := range want {
		if found[key] != v {
			t.Errorf("%s: %q, want %s", key, found[key], v)
		}
	}
	maps.DeleteFunc(found, func(key string, v verdict) bool { return want[key] != "" || v == killed })
	if len(found) > 0 || sum != (outcome{total: 22, killed: 19, broken: 1, survived: 2}) {
		t.Errorf("also %v; %+v", found, sum)
	}
}

// TestTestsThatFailAnywayKillNothing: neither before the first mutant nor later.
func TestTestsThatFailAnywayKillNothing(t *testing.T) {
	for _, c := range []struct{ fails, want string }{
		{"true", "fail without a mutant:"},
		{fmt.Sprintf("os.Mkdir(%q, 0o755) != nil", filepath.Join(t.TempDir(), "second")), "fail without a mutant now:"},
	} {
		tests := strings.Replace(programTest, "\tif l", "\tif os.Getenv(\"MUTANT\") == \"0\" && "+c.fails+" {\n\t\tt.Fail()\n\t}\n\tif l", 1)
		found, _, err := judged(t, strings.Replace(tests, "import ", "import \"os\"\nimport ", 1))
		maps.DeleteFunc(found, func(_ string, v verdict) bool { return v != killed })
		if err == nil || !strings.Contains(err.Error(), c.want) || len(found) > 0 {
			t.Errorf("%s: %v, killed %v", c.fails, err, found)
		}
	}
}
