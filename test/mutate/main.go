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
	base := flag.String("base", "", "mutate the lines that changed since this commit; empty = all lines")
	tests := flag.String("tests", "", "packages whose tests judge, with spaces between; empty = each package's own")
	only := flag.String("only", ".", "mutate the files whose path fits this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *base, strings.Fields(*tests), *only, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run mutates packages and prints what survives; it is an error if something does.
func run(ctx context.Context, base string, tests []string, only string, packages []string) error {
	files, err := regexp.Compile(only)
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
	out, err := command(ctx, tree, "go", append([]string{"list", "-f", "{{.Dir}}"}, packages...)...)
	if err != nil {
		return err
	}
	var sum outcome
	for dir := range strings.FieldsSeq(string(out)) {
		dir, err = filepath.Rel(tree, dir)
		if err != nil {
			return err
		}
		j := judge{tree: tree, dir: dir, tests: tests}
		if len(tests) == 0 {
			j.tests = []string{"./" + dir}
		}
		if err := j.all(ctx, base, files, &sum); err != nil {
			return err
		}
	}
	fmt.Printf("%d mutants: %d killed, %d do not compile, %d listed as equivalent, %d survived\n", sum.total, sum.killed, sum.broken, sum.listed, sum.survived)
	if sum.survived > 0 {
		return errors.New("tests hold not all of these lines: write one that fails, or list the mutant in test/mutate/equivalent.txt with the reason")
	}
	return ctx.Err()
}

// outcome counts mutants.
type outcome struct{ total, killed, broken, listed, survived int }

// judge runs the tests of one package's mutants.
type judge struct {
	tree, dir string
	tests     []string
	limit     time.Duration // of the tests of a mutant
}

func (j *judge) all(ctx context.Context, base string, files *regexp.Regexp, sum *outcome) error {
	mutants, err := j.mutants(ctx, base, files)
	if err != nil || len(mutants) == 0 {
		return err
	}
	fmt.Printf("%s: %d mutants; first the tests without any\n", j.dir, len(mutants))
	begin := time.Now()
	j.limit = 10 * time.Minute
	if out, err := j.test(ctx); err != nil {
		return fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
	}
	j.limit = 3*time.Since(begin) + 30*time.Second
	for n, m := range mutants {
		sum.total++
		src, err := os.ReadFile(filepath.Join(j.tree, m.file))
		if err != nil {
			return err
		}
		if strings.Contains(equivalent, m.name(src)+"\t") {
			sum.listed++
			continue
		}
		what, err := j.try(ctx, m, src)
		if err != nil {
			return err
		}
		switch what {
		case killed:
			sum.killed++
		case broken:
			sum.broken++
		case survived:
			sum.survived++
			fmt.Printf("[%d/%d] survived, line %d: %s\n", n+1, len(mutants), m.line, m.name(src))
		}
	}
	return nil
}

// mutants returns those of the package's files; base as in run.
func (j *judge) mutants(ctx context.Context, base string, only *regexp.Regexp) (all []mutant, err error) {
	out, err := command(ctx, j.tree, "git", "ls-files", j.dir+"/*.go", j.dir+"/*.c", j.dir+"/*.h")
	if err != nil {
		return nil, err
	}
	for file := range strings.FieldsSeq(string(out)) {
		inGo := strings.HasSuffix(file, ".go")
		if strings.HasSuffix(file, "_test.go") || inGo && filepath.Dir(file) != j.dir || !only.MatchString(file) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(j.tree, file))
		if err != nil {
			return nil, err
		}
		lines, err := changed(ctx, j.tree, base, file)
		if err != nil {
			return nil, err
		}
		found, err := mutantsOf(file, src)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			if base == "" || lines[m.line] {
				all = append(all, m)
			}
		}
	}
	return all, nil
}

type verdict int

const (
	killed verdict = iota
	broken
	survived
)

// try runs the tests with a mutant, and puts the file back.
func (j *judge) try(ctx context.Context, m mutant, src []byte) (verdict, error) {
	path := filepath.Join(j.tree, m.file)
	changed := bytes.Join([][]byte{src[:m.begin], []byte(m.text), src[m.end:]}, nil)
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		return 0, err
	}
	inC := !strings.HasSuffix(m.file, ".go")
	defer func() {
		_, _ = command(context.WithoutCancel(ctx), j.tree, "git", "checkout", "-q", "--", j.dir)
	}()
	if inC {
		if _, err := command(ctx, j.tree, "go", "generate", "./"+j.dir); err != nil {
			return broken, ctx.Err()
		}
	} else if _, err := command(ctx, j.tree, "go", "build", "./"+j.dir); err != nil {
		return broken, ctx.Err()
	}
	if _, err := j.test(ctx); err != nil {
		return killed, ctx.Err()
	}
	return survived, ctx.Err()
}

func (j *judge) test(ctx context.Context) ([]byte, error) {
	return command(ctx, j.tree, "go", append([]string{"test", "-short", "-failfast", "-vet=off", "-timeout", j.limit.String()}, j.tests...)...)
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
