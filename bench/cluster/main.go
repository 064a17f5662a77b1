package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// bench is one run.
type bench struct {
	bin    string
	quick  bool // a twentieth of the work, to see that it runs
	driver string
	given  bool // driver was said
	report *report
	closed []func() error // of the section that runs
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// sections in their order.
var sections = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"api", (*bench).api},
	{"rule", (*bench).rule},
	{"onerule", (*bench).oneRule},
	{"cni", (*bench).cni},
	{"change", (*bench).change},
	{"labels", (*bench).labels},
	{"pods", (*bench).pods},
	{"podstart", (*bench).podStart},
	{"podpolicy", (*bench).podPolicy},
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
	b := &bench{bin: *bin, quick: *quick, driver: *driver}
	flag.Visit(func(f *flag.Flag) { b.given = b.given || f.Name == "driver" })
	if b.bin == "" {
		dir, err := os.MkdirTemp("", "contiv-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		b.bin = dir
		if err := testcluster.Build(ctx, ".", dir); err != nil {
			return err
		}
	}
	wanted := strings.Split(*only, ",")
	for _, s := range sections {
		if !slices.Contains(wanted, s.name) {
			continue
		}
		b.report = newReport(ctx, s.name)
		err := s.run(b, ctx)
		if err := errors.Join(err, b.close()); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Print(b.report.text.String())
		if *out != "" {
			if err := os.MkdirAll(*out, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(*out, s.name+".md"), []byte(b.report.text.String()), 0o644); err != nil {
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
		b.onClose(l.Down)
	}
	return l, err
}

func (b *bench) onClose(f func() error) { b.closed = append(b.closed, f) }

// close takes away what was built so far, last things first.
func (b *bench) close() (err error) {
	for _, f := range slices.Backward(b.closed) {
		err = errors.Join(err, f())
	}
	b.closed = nil
	return err
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
