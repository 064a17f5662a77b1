package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// outcome counts mutants.
type outcome struct{ total, killed, broken, listed, hung, survived int }

// judge runs the tests of the mutants of files of one package.
type judge struct {
	tree, dir    string
	files        []string // empty = all of the package
	tests, flags []string // packages, and flags of go test
	base         string
	only         *regexp.Regexp // files
	report       *report
	over         func() bool // the time of this part

	binaries []binary
	limit    time.Duration     // of the tests of a mutant
	sources  map[string][]byte // by file
	pending  []string          // keys of killed mutants; the environment may have been broken already
}

// binary has the tests of a package.
type binary struct{ path, dir string }

// all tries mutants: first those of functions, which are built together and chosen by the
// environment, then each that has to be built by itself.
func (j *judge) all(ctx context.Context, sum *outcome) error {
	mutants, err := j.mutants(ctx)
	if err != nil {
		return err
	}
	joined, alone := map[int]mutant{}, map[int]mutant{}
	for n, m := range mutants {
		sum.total++
		switch v := j.report.verdicts[j.key(m)]; {
		case strings.Contains(equivalent, m.name(j.sources[m.file])+"\t"):
			sum.listed++
		case v == killed:
			sum.killed++
		case v == broken:
			sum.broken++
		case m.joined:
			joined[n+1] = m
		default:
			alone[n+1] = m
		}
	}
	if len(joined)+len(alone) == 0 {
		return nil
	}
	if j.flags == nil && !slices.ContainsFunc(mutants, mutant.inC) { // -short leaves out the kernel's data planes
		j.flags = []string{"-short"}
	}
	dir, err := os.MkdirTemp("", "mutate-tests-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := j.locate(ctx, dir); err != nil {
		return err
	}
	defer j.restore(ctx)
	fmt.Printf("%s: %d of %d mutants; first the tests without any\n", j.dir, len(joined)+len(alone), len(mutants))
	if err := j.tryJoined(ctx, joined, sum); err != nil {
		return err
	}
	j.restore(ctx)
	return j.tryAlone(ctx, alone, sum)
}

func (j *judge) key(m mutant) string { return keyOf(m, j.sources[m.file]) }

// locate finds the packages whose tests judge.
func (j *judge) locate(ctx context.Context, into string) error {
	out, err := command(ctx, j.tree, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}"}, j.tests...)...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for dir := range strings.FieldsSeq(string(out)) {
		j.binaries = append(j.binaries, binary{filepath.Join(into, strconv.Itoa(len(j.binaries))), dir})
	}
	if len(j.binaries) == 0 {
		return fmt.Errorf("%s have no tests", strings.Join(j.tests, " "))
	}
	return nil
}

// restore puts the package back as it was.
func (j *judge) restore(ctx context.Context) {
	_, _ = command(context.WithoutCancel(ctx), j.tree, "git", "checkout", "-q", "--", j.dir)
	_ = os.Remove(j.chooser())
}

func (j *judge) chooser() string { return filepath.Join(j.tree, j.dir, "mutant__.go") }

// tryJoined tries mutants that are built together.
func (j *judge) tryJoined(ctx context.Context, mutants map[int]mutant, sum *outcome) error {
	for len(mutants) > 0 { // without what does not compile
		if err := j.write(mutants); err != nil {
			return err
		}
		out, err := command(ctx, j.tree, "go", "build", "-gcflags=-e", "./"+j.dir)
		if err == nil {
			break
		}
		refused := blamed(out)
		if len(refused) == 0 {
			return fmt.Errorf("%w\n%s", err, out)
		}
		for _, n := range refused {
			if err := j.count(ctx, mutants[n], broken, sum); err != nil {
				return err
			}
			delete(mutants, n)
		}
	}
	return j.try(ctx, mutants, sum, func(n int) (verdict, error) { return j.test(ctx, mutants[n].file, n) })
}

// write writes the files of the package with mutants in them.
func (j *judge) write(mutants map[int]mutant) error {
	for file, src := range j.sources {
		own := maps.Clone(mutants)
		maps.DeleteFunc(own, func(_ int, m mutant) bool { return m.file != file })
		if len(own) == 0 {
			continue
		}
		pkg, joined, err := join(src, own)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(j.tree, file), joined, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(j.chooser(), fmt.Appendf(nil, chooser, pkg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tryAlone builds and tries mutants one by one.
func (j *judge) tryAlone(ctx context.Context, mutants map[int]mutant, sum *outcome) error {
	return j.try(ctx, mutants, sum, func(n int) (verdict, error) {
		defer j.restore(ctx)
		m := mutants[n]
		src := j.sources[m.file]
		changed := bytes.Join([][]byte{src[:m.begin], []byte(m.text), src[m.end:]}, nil)
		if err := os.WriteFile(filepath.Join(j.tree, m.file), changed, 0o644); err != nil {
			return "", err
		}
		if m.inC() {
			if _, err := command(ctx, j.tree, "go", "generate", "./"+j.dir); err != nil {
				return broken, ctx.Err()
			}
		}
		if err := j.build(ctx); err != nil {
			return broken, ctx.Err()
		}
		return j.test(ctx, m.file, 0)
	})
}

// try tries mutants one after another. The tests pass without any before and after.
func (j *judge) try(ctx context.Context, mutants map[int]mutant, sum *outcome, test func(n int) (verdict, error)) error {
	if len(mutants) == 0 || j.over() {
		return ctx.Err()
	}
	j.limit = 20 * time.Minute
	begin, err := j.pass(ctx)
	if err != nil {
		return fmt.Errorf("the tests fail without a mutant: %w", err)
	}
	j.limit = 3*time.Since(begin) + 15*time.Second
	for _, n := range slices.Sorted(maps.Keys(mutants)) {
		v, err := test(n)
		if err != nil {
			return err
		}
		if err := j.count(ctx, mutants[n], v, sum); err != nil {
			return err
		}
		if j.over() {
			break
		}
	}
	return j.confirm(ctx)
}

// checkedAfter is how many mutants may be killed until the tests run without one.
const checkedAfter = 25

// count counts and reports the verdict of a mutant, and prints what no test failed on.
func (j *judge) count(ctx context.Context, m mutant, v verdict, sum *outcome) error {
	switch v {
	case killed:
		sum.killed++
		if j.pending = append(j.pending, j.key(m)); len(j.pending) < checkedAfter {
			return nil
		}
		return j.confirm(ctx)
	case broken:
		sum.broken++
	case hung:
		sum.hung++
		fmt.Printf("hung, which no test noticed, line %d: %s\n", m.line, m.name(j.sources[m.file]))
	case survived:
		sum.survived++
		fmt.Printf("survived, line %d: %s\n", m.line, m.name(j.sources[m.file]))
	}
	return j.report.put(v, j.key(m))
}

// confirm reports the mutants that were killed, if the tests still pass without one. It is an
// error if they do not: then something else killed them.
func (j *judge) confirm(ctx context.Context) error {
	if len(j.pending) == 0 {
		return ctx.Err()
	}
	if _, err := j.pass(ctx); err != nil {
		return fmt.Errorf("the tests fail without a mutant now: the last %d that were killed do not count: %w", len(j.pending), err)
	}
	err := j.report.put(killed, j.pending...)
	j.pending = nil
	return err
}

// pass runs the tests without a mutant, and returns when they began. It is an error if one
// fails.
func (j *judge) pass(ctx context.Context) (begin time.Time, err error) {
	if err := j.build(ctx); err != nil {
		return begin, err
	}
	begin = time.Now()
	for _, b := range j.binaries {
		if out, err := j.run(ctx, b, 0); err != nil {
			return begin, fmt.Errorf("%s: %w\n%s", b.dir, err, out)
		}
	}
	return begin, ctx.Err()
}

// build builds the tests.
func (j *judge) build(ctx context.Context) error {
	for _, b := range j.binaries {
		if out, err := command(ctx, b.dir, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", b.path, "."); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

// test returns what the tests say of a mutant: first those beside its file, which kill most.
func (j *judge) test(ctx context.Context, file string, n int) (verdict, error) {
	for _, b := range j.binaries {
		if own := j.ownTests(file); own != "" && b.dir == filepath.Join(j.tree, j.dir) {
			if out, err := j.run(ctx, b, n, "-test.run", own); err != nil {
				return verdictOf(out), ctx.Err()
			}
		}
	}
	for _, b := range j.binaries {
		if out, err := j.run(ctx, b, n); err != nil {
			return verdictOf(out), ctx.Err()
		}
	}
	return survived, ctx.Err()
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)

// ownTests is an expression for the tests of FILE_test.go; empty = there are none, or the judge
// has its own expression.
func (j *judge) ownTests(file string) string {
	text, _ := os.ReadFile(filepath.Join(j.tree, strings.TrimSuffix(file, ".go")+"_test.go")) // not each file has one
	var names []string
	for _, m := range testName.FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) == 0 || slices.Contains(j.flags, "-run") {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// run runs the tests of a package as go test does.
func (j *judge) run(ctx context.Context, b binary, n int, flags ...string) ([]byte, error) {
	args := append([]string{"MUTANT=" + strconv.Itoa(n), b.path, "-test.failfast", "-test.paniconexit0", "-test.timeout=" + j.limit.String()}, flags...)
	for _, f := range j.flags {
		if name, ok := strings.CutPrefix(f, "-"); ok {
			f = "-test." + name
		}
		args = append(args, f)
	}
	return command(ctx, b.dir, "env", args...)
}

// mutants returns those of the package's files.
func (j *judge) mutants(ctx context.Context) (all []mutant, err error) {
	out, err := command(ctx, j.tree, "git", "ls-files", j.dir+"/*.go", j.dir+"/*.c", j.dir+"/*.h")
	if err != nil {
		return nil, err
	}
	j.sources = map[string][]byte{}
	for file := range strings.FieldsSeq(string(out)) {
		inGo := strings.HasSuffix(file, ".go")
		if strings.HasSuffix(file, "_test.go") || inGo && filepath.Dir(file) != j.dir || !j.only.MatchString(file) || len(j.files) > 0 && !slices.Contains(j.files, file) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(j.tree, file))
		if err != nil {
			return nil, err
		}
		j.sources[file] = src
		lines, err := changed(ctx, j.tree, j.base, file)
		if err != nil {
			return nil, err
		}
		found, err := mutantsOf(file, src)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			if j.base == "" || lines[m.line] {
				all = append(all, m)
			}
		}
	}
	return all, nil
}
