package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Code is a sum of the programs' code and of more directories, as they are committed, tests
// left out: a report with another sum is not of this code. Empty when something is not
// committed.
func Code(ctx context.Context, more ...string) string {
	of := append([]string{"api", "cmd", "internal", "go.mod", "go.sum"}, more...)
	top := Output(ctx, "git", "rev-parse", "--show-toplevel")
	git := func(args ...string) string {
		return Output(ctx, "git", slices.Concat([]string{"-C", top}, args, []string{"--"}, of)...)
	}
	if git("status", "--porcelain") != "" {
		return ""
	}
	sum := sha256.New()
	for line := range strings.Lines(git("ls-tree", "-r", "HEAD")) {
		if !strings.HasSuffix(strings.TrimSpace(line), "_test.go") {
			sum.Write([]byte(line))
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
