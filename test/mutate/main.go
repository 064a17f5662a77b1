package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// equivalent lists the mutants that change nothing which tests could see: file, line as it
// is, change and reason, with tabs between.
//
//go:embed equivalent.txt
var equivalent string

func main() {
	var o options
	flag.StringVar(&o.base, "base", "", "mutate the lines that changed since this commit; empty = all lines")
	tests := flag.String("tests", "", "packages whose tests judge, with spaces between; empty = each package's own")
	flag.StringVar(&o.only, "only", ".", "mutate the files whose path fits this regular expression")
	flag.BoolVar(&o.decisions, "decisions", false, "mutate the files of decisions.txt, with the tests that it names")
	flag.StringVar(&o.report, "report", "", "`file` that has the verdicts of former parts and gets this one's: what was killed is not tried again while its file stays as it is")
	flag.DurationVar(&o.length, "for", 0, "end after this time, between two mutants; 0 = when all are tried")
	flag.Parse()
	o.tests = strings.Fields(*tests)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// options are what a run is asked for, by its flags.
type options struct {
	base, only, report string
	tests              []string
	decisions          bool
	length             time.Duration
}

// run mutates packages and prints what survives; it is an error if something does.
func run(ctx context.Context, o options, packages []string) error {
	files, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	rep, err := readReport(o.report)
	if err != nil {
		return err
	}
	tree, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }() // git has removed it, unless it could not
	if _, err := command(ctx, ".", "git", "worktree", "add", "-q", "--detach", tree, "HEAD"); err != nil {
		return err
	}
	defer func() {
		_, _ = command(context.WithoutCancel(ctx), ".", "git", "worktree", "remove", "--force", tree)
	}()
	var judges []*judge
	if o.decisions {
		judges, err = judgesOfDecisions(tree, files)
	} else {
		judges, err = judgesOf(ctx, tree, files, packages, o)
	}
	if err != nil {
		return err
	}
	var sum outcome
	until := time.Now().Add(o.length)
	for _, j := range judges {
		j.tree, j.base, j.report = tree, o.base, rep
		if j.over = func() bool { return o.length > 0 && time.Now().After(until) }; j.over() {
			break
		}
		if err := j.all(ctx, &sum); err != nil {
			return err
		}
	}
	fmt.Printf("%d mutants: %d killed, %d do not compile, %d listed as equivalent, %d hung, %d survived\n", sum.total, sum.killed, sum.broken, sum.listed, sum.hung, sum.survived)
	if o.length > 0 && time.Now().After(until) {
		fmt.Println("not all were tried: the next run goes on where the report ends")
	}
	if sum.survived > 0 {
		return errors.New("tests hold not all of these lines: write one that fails, or list the mutant in test/mutate/equivalent.txt with the reason")
	}
	return ctx.Err()
}

// judgesOf returns a judge of each package.
func judgesOf(ctx context.Context, tree string, files *regexp.Regexp, packages []string, o options) (all []*judge, err error) {
	out, err := command(ctx, tree, "go", append([]string{"list", "-f", "{{.Dir}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	for dir := range strings.FieldsSeq(string(out)) {
		if dir, err = filepath.Rel(tree, dir); err != nil {
			return nil, err
		}
		j := &judge{dir: dir, only: files, tests: o.tests}
		if len(o.tests) == 0 {
			j.tests = []string{"./" + dir}
		}
		all = append(all, j)
	}
	return all, nil
}

// outcome counts mutants.
type outcome struct{ total, killed, broken, listed, hung, survived int }

// judge runs the tests of the mutants of one package's files.
type judge struct {
	tree, dir string
	base      string
	only      *regexp.Regexp // files
	tests     []string       // packages
	flags     []string       // of go test
	report    *report
	over      func() bool // the time of this part

	limit   time.Duration // of the tests of a mutant
	pending []string      // keys of killed mutants; the environment may have been broken already
}

func (j *judge) all(ctx context.Context, sum *outcome) error {
	mutants, err := j.mutants(ctx)
	if err != nil || len(mutants) == 0 {
		return err
	}
	switch { // -short leaves out the kernel's data planes
	case slices.ContainsFunc(mutants, mutant.inC):
		j.flags = append(j.flags, "-count=1") // nothing tells go that the object has changed
	case j.flags == nil:
		j.flags = []string{"-short"}
	}
	for n, m := range mutants {
		src, err := os.ReadFile(filepath.Join(j.tree, m.file))
		if err != nil {
			return err
		}
		key := keyOf(m, src)
		sum.total++
		switch {
		case strings.Contains(equivalent, m.name(src)+"\t"):
			sum.listed++
			continue
		case j.report.verdicts[key] == killed:
			sum.killed++
			continue
		case j.report.verdicts[key] == broken:
			sum.broken++
			continue
		}
		if j.limit == 0 {
			fmt.Printf("%s: %d mutants; first the tests without any\n", cmp.Or(j.file(mutants), j.dir), len(mutants))
			if err := j.measure(ctx); err != nil {
				return err
			}
		}
		what, err := j.try(ctx, m, src)
		if err != nil {
			return err
		}
		switch what {
		case killed:
			sum.killed++
			if j.pending = append(j.pending, key); len(j.pending) < checkedAfter {
				continue
			}
			err = j.confirm(ctx)
		case broken:
			sum.broken++
			err = j.report.put(what, key)
		case hung:
			sum.hung++
			fmt.Printf("[%d/%d] hung, which no test noticed, line %d: %s\n", n+1, len(mutants), m.line, m.name(src))
			err = j.report.put(what, key)
		case survived:
			sum.survived++
			fmt.Printf("[%d/%d] survived, line %d: %s\n", n+1, len(mutants), m.line, m.name(src))
			err = j.report.put(what, key)
		}
		if err != nil {
			return err
		}
		if j.over() {
			break
		}
	}
	return j.confirm(ctx)
}

// file is the only file of mutants, empty if there are several.
func (j *judge) file(mutants []mutant) string {
	if slices.ContainsFunc(mutants, func(m mutant) bool { return m.file != mutants[0].file }) {
		return ""
	}
	return mutants[0].file
}

// measure runs the tests without a mutant, and has those of mutants end some time later than
// these.
func (j *judge) measure(ctx context.Context) error {
	begin := time.Now()
	j.limit = 20 * time.Minute
	if out, err := j.test(ctx); err != nil {
		return fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
	}
	j.limit = 3*time.Since(begin) + 30*time.Second
	return nil
}

// checkedAfter is how many mutants may be killed until the tests run without one.
const checkedAfter = 25

// confirm reports the mutants that were killed, if the tests still pass without one. It is an
// error if they do not: then something else killed them.
func (j *judge) confirm(ctx context.Context) error {
	if len(j.pending) == 0 {
		return ctx.Err()
	}
	if out, err := j.test(ctx); err != nil {
		return fmt.Errorf("the tests fail without a mutant now: the last %d that were killed do not count: %w\n%s", len(j.pending), err, out)
	}
	err := j.report.put(killed, j.pending...)
	j.pending = nil
	return err
}

// mutants returns those of the package's files.
func (j *judge) mutants(ctx context.Context) (all []mutant, err error) {
	out, err := command(ctx, j.tree, "git", "ls-files", j.dir+"/*.go", j.dir+"/*.c", j.dir+"/*.h")
	if err != nil {
		return nil, err
	}
	for file := range strings.FieldsSeq(string(out)) {
		inGo := strings.HasSuffix(file, ".go")
		if strings.HasSuffix(file, "_test.go") || inGo && filepath.Dir(file) != j.dir || !j.only.MatchString(file) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(j.tree, file))
		if err != nil {
			return nil, err
		}
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

// try runs the tests with a mutant, and puts the file back.
func (j *judge) try(ctx context.Context, m mutant, src []byte) (verdict, error) {
	path := filepath.Join(j.tree, m.file)
	changed := bytes.Join([][]byte{src[:m.begin], []byte(m.text), src[m.end:]}, nil)
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		return "", err
	}
	defer func() {
		_, _ = command(context.WithoutCancel(ctx), j.tree, "git", "checkout", "-q", "--", j.dir)
	}()
	if m.inC() {
		if _, err := command(ctx, j.tree, "go", "generate", "./"+j.dir); err != nil {
			return broken, ctx.Err()
		}
	} else if _, err := command(ctx, j.tree, "go", "build", "./"+j.dir); err != nil {
		return broken, ctx.Err()
	}
	if out, err := j.test(ctx); err != nil {
		return verdictOf(out), ctx.Err()
	}
	return survived, ctx.Err()
}

func (j *judge) test(ctx context.Context) ([]byte, error) {
	args := append([]string{"test", "-failfast", "-vet=off", "-timeout", j.limit.String()}, j.flags...)
	return command(ctx, j.tree, "go", append(args, j.tests...)...)
}

var hunk = regexp.MustCompile(`(?m)^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// changed returns the lines of a file that changed since a commit.
func changed(ctx context.Context, tree, base, file string) (map[int]bool, error) {
	if base == "" {
		return nil, nil
	}
	out, err := command(ctx, tree, "git", "diff", "-U0", base, "HEAD", "--", file)
	lines := map[int]bool{}
	for _, m := range hunk.FindAllStringSubmatch(string(out), -1) {
		from, _ := strconv.Atoi(m[1]) // the expression allows digits alone
		n, _ := strconv.Atoi(cmp.Or(m[2], "1"))
		for i := range n {
			lines[from+i] = true
		}
	}
	return lines, err
}

func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, err
}
