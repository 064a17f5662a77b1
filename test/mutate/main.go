package main

import (
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

// maxMemory is what each command can write to: some mutants append for ever.
const maxMemory = 8 << 30

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
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: maxMemory, Max: maxMemory}) // it fails where less is allowed
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
		judges, err = judgesOfDecisions(tree)
	} else {
		judges, err = judgesOf(ctx, tree, packages, o.tests)
	}
	if err != nil {
		return err
	}
	var sum outcome
	until := time.Now().Add(o.length)
	for _, j := range judges {
		j.tree, j.base, j.only, j.report = tree, o.base, files, rep
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
func judgesOf(ctx context.Context, tree string, packages, tests []string) (all []*judge, err error) {
	out, err := command(ctx, tree, "go", append([]string{"list", "-f", "{{.Dir}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	for dir := range strings.FieldsSeq(string(out)) {
		if dir, err = filepath.Rel(tree, dir); err != nil {
			return nil, err
		}
		j := &judge{dir: dir, tests: tests}
		if len(tests) == 0 {
			j.tests = []string{"./" + dir}
		}
		all = append(all, j)
	}
	return all, nil
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
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second // children of a test that is gone keep its output open
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, err
}
