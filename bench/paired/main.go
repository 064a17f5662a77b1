package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/contiv/netplugin/v2/bench/stats"
)

func main() { os.Exit(stats.Main("paired", execute)) }

func execute(ctx context.Context) (err error) {
	base := flag.String("base", "", "the older commit, compared with what is checked out")
	turns := flag.Int("turns", 6, "runs of each, at least 3")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./bench/paired -base COMMIT [-turns N] PACKAGE [ARGUMENT...]\nas in: go run ./bench/paired -base v2.0.0 ./bench/datapath -only onehost -rounds 5")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *base == "" || *turns < 3 || flag.NArg() == 0 {
		flag.Usage()
		return errors.New("a base, at least 3 turns and a package are wanted")
	}
	dir, err := os.MkdirTemp("", "contiv-paired-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	old := filepath.Join(dir, "base")
	if _, err := command(ctx, ".", "git", "worktree", "add", "--detach", old, *base); err != nil {
		return err
	}
	defer func() {
		_, e := command(context.WithoutCancel(ctx), ".", "git", "worktree", "remove", "--force", old)
		err = errors.Join(err, e)
	}()
	trees := [2]string{old, "."}
	var found [2]figures
	for i, tree := range trees {
		if _, err := command(ctx, tree, "go", "build", "-o", filepath.Join(dir, strconv.Itoa(i)), flag.Arg(0)); err != nil {
			return err
		}
	}
	for turn := range *turns {
		for k := range trees {
			i := (turn + k) % 2
			fmt.Fprintf(os.Stderr, "turn %d of %d: %s\n", turn+1, *turns, [2]string{*base, "this"}[i])
			out, err := command(ctx, trees[i], filepath.Join(dir, strconv.Itoa(i)), flag.Args()[1:]...)
			if err != nil {
				return err
			}
			found[i].add(out)
		}
	}
	fmt.Printf("%s, kernel %s\n\n", stats.Processor(), stats.Output(ctx, "uname", "-r"))
	fmt.Print(compare(found[0], found[1]))
	return nil
}

// command runs a program in a directory and gives what it printed.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	// what is interrupted removes what it built
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, errs.String())
	}
	return out.String(), nil
}
