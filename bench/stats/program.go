package stats

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Main runs a benchmark until it ends or is interrupted, prints its error, and returns the
// program's exit code.
func Main(name string, run func(context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Section is a part of benchmark B that can run by itself.
type Section[B any] struct {
	Name string
	Run  func(B, context.Context) error
}

// Named returns the sections of a list of names separated by commas, in their own order.
func Named[B any](all []Section[B], names string) []Section[B] {
	return slices.DeleteFunc(slices.Clone(all), func(s Section[B]) bool { return !slices.Contains(strings.Split(names, ","), s.Name) })
}
