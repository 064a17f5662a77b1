package stats

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Code is a sum of the programs' code, tests left out, and of more directories, with their
// tests and without their reports (JSON), as they are committed: a report with another sum is
// not of this code. Empty when something is not committed.
func Code(ctx context.Context, more ...string) string {
	of := append([]string{"api", "cmd", "internal", "go.mod", "go.sum"}, more...)
	top := Output(ctx, "git", "rev-parse", "--show-toplevel")
	git := func(args ...string) string {
		return Output(ctx, "git", slices.Concat([]string{"-C", top}, args, []string{"--"}, of)...)
	}
	counts := func(path string) bool {
		if slices.ContainsFunc(more, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			return !strings.HasSuffix(path, ".json")
		}
		return !strings.HasSuffix(path, "_test.go")
	}
	changed := git("diff", "--name-only", "--relative", "HEAD") + "\n" + git("ls-files", "--others", "--exclude-standard")
	if slices.ContainsFunc(strings.Fields(changed), counts) {
		return ""
	}
	sum := sha256.New()
	for line := range strings.Lines(git("ls-tree", "-r", "HEAD")) {
		if _, path, _ := strings.Cut(strings.TrimSpace(line), "\t"); counts(path) {
			sum.Write([]byte(line))
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
