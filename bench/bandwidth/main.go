package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/desired"
)

func main() {
	seconds := flag.Int("seconds", 5, "of each run, after its first")
	driver := flag.String("driver", "ebpf", "ebpf, or ovs in user space")
	highest := flag.Float64("highest", 1000, "profile, in Mbit/s: those beyond it are left out")
	flag.Parse()
	if *driver != "ebpf" && *driver != driverOVS {
		fmt.Fprintln(os.Stderr, "bandwidth: -driver is ebpf or ovs")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, os.Stdout, *driver, *seconds, *highest); err != nil {
		fmt.Fprintln(os.Stderr, "bandwidth:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be undone
	}
}

func measure(ctx context.Context, w io.Writer, driver string, seconds int, highest float64) error {
	r, err := newRig(ctx, driver, 4)
	if err != nil {
		return err
	}
	defer r.close()
	fmt.Fprint(w, "| profile | direction | traffic | lowest and highest second, % of the profile | round trip of a probe beside it, median / p99 / highest, ms | probes lost | a stream's share, lowest and highest, % | |\n|---|---|---|---|---|---|---|---|\n")
	for _, mbit := range []float64{1, 10, 100, 1000} {
		if mbit > highest {
			break
		}
		limit := desired.Limit{Bits: uint64(mbit * 1e6)}
		for _, way := range []struct {
			name string
			at   int
			rate desired.Rate
		}{{"sends", 0, desired.Rate{Send: limit}}, {"receives", 1, desired.Rate{Receive: limit}}} {
			if err := r.rate(ctx, way.at, &way.rate); err != nil {
				return err
			}
			for _, control := range []string{"cubic", "reno", "bbr"} {
				for _, streams := range []int{1, 8} {
					res, err := r.tcp(ctx, 0, 1, streams, control, seconds)
					if err != nil {
						return err
					}
					row(w, mbit, way.name, fmt.Sprintf("%s, %d", control, streams), res, 95, 105)
				}
			}
			res, err := r.udp(ctx, 0, 1, mbit, seconds)
			if err != nil {
				return err
			}
			row(w, mbit, way.name, "UDP", res, 0, 102)
			if err := r.rate(ctx, way.at, nil); err != nil {
				return err
			}
		}
	}
	return together(ctx, w, r, seconds)
}

// together measures two containers with different profiles at once.
func together(ctx context.Context, w io.Writer, r *rig, seconds int) error {
	rates := []float64{20, 200}
	for i, mbit := range rates {
		if err := r.rate(ctx, 2*i, &desired.Rate{Send: desired.Limit{Bits: uint64(mbit * 1e6)}}); err != nil {
			return err
		}
	}
	results := make([]result, len(rates))
	g, ctx := errgroup.WithContext(ctx)
	for i := range rates {
		g.Go(func() (err error) {
			results[i], err = r.tcp(ctx, 2*i, 2*i+1, 1, "cubic", seconds)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, mbit := range rates {
		row(w, mbit, "sends", "cubic, 1, beside the other of these two", results[i], 95, 105)
	}
	return nil
}

// row prints a run; what is not within low and high per cent, or waits too long, is
// said to be missed.
func row(w io.Writer, mbit float64, way, traffic string, r result, low, high float64) {
	least, most := slices.Min(r.seconds)/mbit*100, slices.Max(r.seconds)/mbit*100
	verdict := "holds"
	if least < low || most > high {
		verdict = "*rate missed*"
	}
	waits, shares := "", ""
	if n := len(r.waits); n > 0 {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		p99 := r.waits[n*99/100]
		waits = fmt.Sprintf("%.2f / %.2f / %.2f", ms(r.waits[n/2]), ms(p99), ms(r.waits[n-1]))
		if want := 20 * time.Millisecond; p99 > want || mbit >= 100 && p99 > 5*time.Millisecond {
			verdict += ", *wait missed*"
		}
	}
	if len(r.shares) > 1 {
		shares = fmt.Sprintf("%.0f, %.0f", slices.Min(r.shares)*100, slices.Max(r.shares)*100)
	}
	fmt.Fprintf(w, "| %g Mbit/s | %s | %s | %.1f, %.1f | %s | %d of %d | %s | %s |\n", mbit, way, traffic, least, most, waits, r.lost, r.lost+len(r.waits), shares, verdict)
}
