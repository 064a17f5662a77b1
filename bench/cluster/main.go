package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// bench is one run.
type bench struct {
	bin         string
	quick       bool // a twentieth of the work, to see that it runs
	driver      string
	given       bool // driver was said
	report      *report
	rig.Cleanup // of the section that runs
}

func main() { os.Exit(stats.Main("bench", run)) }

// sections in their order.
var sections = []stats.Section[*bench]{
	{Name: "api", Run: (*bench).api},
	{Name: "rule", Run: (*bench).rule},
	{Name: "onerule", Run: (*bench).oneRule},
	{Name: "cni", Run: (*bench).cni},
	{Name: "change", Run: (*bench).change},
	{Name: "labels", Run: (*bench).labels},
	{Name: "pods", Run: (*bench).pods},
	{Name: "podstart", Run: (*bench).podStart},
	{Name: "podpolicy", Run: (*bench).podPolicy},
}

func run(ctx context.Context) (err error) {
	only := flag.String("only", "api,rule,onerule,cni,change,labels", "sections to run, separated by commas; pods, podstart and podpolicy need a Kubernetes: CONTIV_KUBE=$(tools/kube.sh)")
	out := flag.String("out", "", "directory to write one file of results a section to; empty = print only")
	quick := flag.Bool("quick", false, "a twentieth of the work: does it run?")
	driver := flag.String("driver", testcluster.DriverOVS, "data plane of the hosts: ovs, ebpf or mixed; onerule, pods and podpolicy run on ebpf and then on ovs unless it is said")
	bin := flag.String("bin", "", "directory of the programs; empty = build them")
	bare := flag.String("bare", "", "for the bench itself: be the bare server over the etcd at this URL")
	flag.Parse()
	if *bare != "" {
		return serveBare(ctx, *bare)
	}
	b := &bench{quick: *quick, driver: *driver}
	flag.Visit(func(f *flag.Flag) { b.given = b.given || f.Name == "driver" })
	programs, remove, err := rig.Programs(ctx, *bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b.bin = programs
	for _, s := range stats.Named(sections, *only) {
		b.report = newReport(ctx, s.Name)
		err := s.Run(b, ctx)
		if err := errors.Join(err, b.Close()); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		fmt.Print(b.report.text.String())
		if *out != "" {
			if err := os.MkdirAll(*out, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(*out, s.Name+".md"), []byte(b.report.text.String()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// n scales an amount of work.
func (b *bench) n(full int) int {
	if b.quick {
		return max(full/20, 2)
	}
	return full
}

// detail prints single values to error output, in the order measured.
func (b *bench) detail(what string, d []time.Duration) {
	fmt.Fprintf(os.Stderr, "%s (ms):", what)
	for _, v := range d {
		fmt.Fprintf(os.Stderr, " %s", ms(v))
	}
	fmt.Fprintln(os.Stderr)
}

// lab builds a cluster that goes away at the section's end.
func (b *bench) lab(ctx context.Context, cfg testcluster.Config) (*testcluster.Lab, error) {
	cfg.BinDir = b.bin
	if cfg.Driver == "" {
		cfg.Driver = b.driver
	}
	l, err := testcluster.Up(ctx, cfg)
	if err == nil {
		b.OnClose(l.Down)
	}
	return l, err
}

// percentile returns the duration below which the part q of all lies, nearest rank.
func percentile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
