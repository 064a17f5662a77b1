package main

import (
	"context"
	"errors"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := execute(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bandwidth:", err)
		os.Exit(1)
	}
}

// options are what a run is to measure.
type options struct {
	driver   string
	seconds  int     // of each row, after its first
	highest  float64 // profile in Mbit/s
	fairness int     // seconds over which streams are compared
	pairs    int     // of figures without a profile
}

func execute(ctx context.Context, args []string, w io.Writer) error {
	var o options
	f := flag.NewFlagSet("bandwidth", flag.ContinueOnError)
	f.StringVar(&o.driver, "driver", "ebpf", "ebpf, or ovs in user space")
	f.IntVar(&o.seconds, "seconds", 3, "of each row, after its first second")
	f.Float64Var(&o.highest, "highest", 1000, "profile, in Mbit/s: those beyond it are left out")
	f.IntVar(&o.fairness, "fairness", 10, "seconds over which eight streams are compared; 0 = not")
	f.IntVar(&o.pairs, "pairs", 4, "pairs of figures of endpoints without a profile; 0 = none")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case o.driver != "ebpf" && o.driver != driverOVS:
		return errors.New("-driver is ebpf or ovs")
	case o.seconds < 1:
		return errors.New("-seconds is at least 1")
	}
	return measure(ctx, w, o)
}

// profiles are those that are measured, Mbit/s.
var profiles = []float64{1, 10, 100, 1000}

// runs are TCP's: bbr, which paces itself and so hides much, is beside the others.
var runs = []struct {
	control string
	streams int
}{{"cubic", 1}, {"cubic", 8}, {"reno", 1}, {"reno", 8}, {"bbr", 1}}

func measure(ctx context.Context, w io.Writer, o options) error {
	r, err := newRig(ctx, o.driver, 4)
	if err != nil {
		return err
	}
	defer r.close()
	fmt.Fprint(w, "| profile | direction | traffic | lowest and highest second, % of the profile | round trip of a probe beside it, median / p99 / highest, ms | probes lost | a stream's share, lowest and highest, %, and Jain's index | |\n|---|---|---|---|---|---|---|---|\n")
	for _, mbit := range profiles {
		if mbit > o.highest {
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
			for _, run := range runs {
				res, err := r.tcp(ctx, 0, 1, run.streams, run.control, o.seconds)
				if err != nil {
					return err
				}
				row(w, mbit, way.name, fmt.Sprintf("%s, %d", run.control, run.streams), res, 95, 105)
			}
			res, err := r.udp(ctx, 0, 1, mbit, o.seconds)
			if err != nil {
				return err
			}
			row(w, mbit, way.name, "UDP", res, 0, 102)
			if way.at == 0 && o.fairness > 0 {
				res, err := r.tcp(ctx, 0, 1, 8, "cubic", o.fairness)
				if err != nil {
					return err
				}
				row(w, mbit, way.name, fmt.Sprintf("cubic, 8, over %d s", o.fairness), res, 95, 105)
			}
			if err := r.rate(ctx, way.at, nil); err != nil {
				return err
			}
		}
	}
	if err := together(ctx, w, r, o.seconds); err != nil {
		return err
	}
	return unlimited(ctx, w, r, o.pairs)
}

// jain is Jain's index of fairness: 1 = all have the same, 1/n = one of n has all.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum, squares = sum+x, squares+x*x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares / float64(len(shares))
}

// unlimited measures two containers without a profile, in turn where nobody has one and
// beside two that have, which rest.
func unlimited(ctx context.Context, w io.Writer, r *rig, pairs int) error {
	if pairs == 0 {
		return nil
	}
	limit := desired.Limit{Bits: 20_000_000}
	states := [2]*desired.Rate{nil, {Send: limit, Receive: limit, DSCP: 46}}
	fmt.Fprint(w, "\n| endpoints without a profile | no profiles at all, median | beside two with one, median | the second in % of the first, of each pair: median, lowest, highest | |\n|---|---|---|---|---|\n")
	for _, streams := range []int{1, 8} {
		var rates, waits [2][]float64
		for i := range pairs {
			for j := range states {
				at := (i + j) % 2 // who is first takes turns
				for c := range 2 {
					if err := r.rate(ctx, c, states[at]); err != nil {
						return err
					}
				}
				res, err := r.tcp(ctx, 2, 3, streams, "cubic", 1)
				if err != nil {
					return err
				}
				rates[at] = append(rates[at], res.seconds[0])
				alone := r.probe(ctx, 2, 3, time.Second)
				if len(alone.waits) == 0 {
					return errors.New("no probe came back")
				}
				waits[at] = append(waits[at], float64(alone.waits[len(alone.waits)/2].Microseconds()))
			}
		}
		pair(w, fmt.Sprintf("cubic, %d, Mbit/s", streams), rates)
		pair(w, "round trip without traffic, µs", waits)
	}
	for c := range 2 {
		if err := r.rate(ctx, c, nil); err != nil {
			return err
		}
	}
	return nil
}

// pair prints a row of paired figures. Unchanged is a median within 5 %.
func pair(w io.Writer, what string, figures [2][]float64) {
	var parts []float64
	for i := range figures[0] {
		parts = append(parts, figures[1][i]/max(figures[0][i], 1)*100)
	}
	median := func(all []float64) float64 {
		return slices.Sorted(slices.Values(all))[len(all)/2]
	}
	verdict := "unchanged"
	if m := median(parts); m < 95 || m > 105 {
		verdict = "*differs*"
	}
	fmt.Fprintf(w, "| %s | %.0f | %.0f | %.1f, %.1f, %.1f | %s |\n", what, median(figures[0]), median(figures[1]), median(parts), slices.Min(parts), slices.Max(parts), verdict)
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
	all := ctx
	g, ctx := errgroup.WithContext(all)
	for i := range rates {
		g.Go(func() (err error) {
			results[i], err = r.tcp(ctx, 2*i, 2*i+1, 1, "cubic", seconds)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range rates {
		if err := r.rate(all, 2*i, nil); err != nil {
			return err
		}
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
		shares = fmt.Sprintf("%.0f, %.0f, %.3f", slices.Min(r.shares)*100, slices.Max(r.shares)*100, jain(r.shares))
	}
	fmt.Fprintf(w, "| %g Mbit/s | %s | %s | %.1f, %.1f | %s | %d of %d | %s | %s |\n", mbit, way, traffic, least, most, waits, r.lost, r.lost+len(r.waits), shares, verdict)
}
