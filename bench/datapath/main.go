package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is one run.
type bench struct {
	rounds int
	window time.Duration
	quick  bool
	report *report
}

// sections in their order.
var sections = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"onehost", (*bench).oneHost},
	{"twohosts", (*bench).twoHosts},
	{"routed", (*bench).routed},
	{"scale", (*bench).scale},
	{"longway", (*bench).longWay},
	{"underlay", (*bench).underlay},
	{"services", (*bench).services},
	{"whole", (*bench).whole},
	{"kubernetes", (*bench).kubernetes},
}

func main() {
	runtime.GOMAXPROCS(32) // each thread of a measurement holds one while it waits
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func execute(ctx context.Context) error {
	var names []string
	for _, s := range sections[:len(sections)-1] { // kubernetes needs one that is built: only if it is named
		names = append(names, s.name)
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
	b.report = newReport(ctx, *as)
	for _, s := range sections {
		if !slices.Contains(strings.Split(*only, ","), s.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, s.name)
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
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

// with builds a rig for a section and takes it away after it.
func (b *bench) with(ctx context.Context, name string, ovsHosts int, f func(*rig) error) error {
	r, err := newRig(ctx, name, ovsHosts)
	if err != nil {
		return err
	}
	return errors.Join(f(r), r.close())
}
