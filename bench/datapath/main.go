package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// bench is one run.
type bench struct {
	rounds int
	window time.Duration
	quick  bool
	report *report
}

// sections in their order.
var sections = []stats.Section[*bench]{
	{Name: "onehost", Run: (*bench).oneHost},
	{Name: "twohosts", Run: (*bench).twoHosts},
	{Name: "routed", Run: (*bench).routed},
	{Name: "scale", Run: (*bench).scale},
	{Name: "longway", Run: (*bench).longWay},
	{Name: "underlay", Run: (*bench).underlay},
	{Name: "services", Run: (*bench).services},
	{Name: "whole", Run: (*bench).whole},
	{Name: "kubernetes", Run: (*bench).kubernetes},
}

func main() {
	runtime.GOMAXPROCS(32) // each thread of a measurement holds one while it waits
	os.Exit(stats.Main("bench", execute))
}

func execute(ctx context.Context) error {
	var names []string
	for _, s := range sections[:len(sections)-1] { // kubernetes needs one that is built: only if it is named
		names = append(names, s.Name)
	}
	b := &bench{}
	only := flag.String("only", strings.Join(names, ","), "sections to run, separated by commas; kubernetes needs a Kubernetes: CONTIV_KUBE=$(tools/kube.sh)")
	out := flag.String("out", "", "directory to write the results to, as text and JSON; empty = print only")
	as := flag.String("as", "datapath", "what the results are called")
	flag.IntVar(&b.rounds, "rounds", 21, "rounds of each measurement, at least 5")
	flag.DurationVar(&b.window, "window", 100*time.Millisecond, "how long each measurement of a round lasts")
	flag.BoolVar(&b.quick, "quick", false, "does it run? little rounds and tables")
	flag.Parse()
	if b.quick {
		b.rounds, b.window = 5, 50*time.Millisecond
	}
	if b.rounds < 5 {
		return errors.New("-rounds must be at least 5: medians of fewer say nothing")
	}
	b.report = &report{Run: stats.NewRun(ctx, *as, "datapath")}
	for _, s := range stats.Named(sections, *only) {
		fmt.Fprintln(os.Stderr, s.Name)
		if err := s.Run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	fmt.Print(b.report.text())
	if *out != "" {
		return b.report.write(*out)
	}
	return nil
}

// n scales an amount of work.
func (b *bench) n(full int) int {
	if b.quick {
		return full / 20
	}
	return full
}

// with builds a testbed for a section and takes it away after it.
func (b *bench) with(ctx context.Context, cfg testcluster.Config, f func(testbed) error) error {
	r, err := rig.New(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(testbed{r}), r.Close())
}
