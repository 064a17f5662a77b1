package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func main() { os.Exit(stats.Main("bandwidth", execute)) }

// options are what a run is to measure.
type options struct {
	driver   string
	seconds  int            // of each row, after its first
	profiles []float64      // Mbit/s
	highest  float64        // of them
	fairness int            // seconds over which streams are compared
	pairs    int            // of figures without a profile
	rows     *regexp.Regexp // of what a row begins with
	repeat   int            // of each row
}

func execute(ctx context.Context) error {
	var o options
	flag.StringVar(&o.driver, "driver", testcluster.DriverEBPF, "ebpf, or ovs in user space")
	flag.IntVar(&o.seconds, "seconds", 3, "of each row, after its first second")
	flag.Float64Var(&o.highest, "highest", 1000, "profile, in Mbit/s: those beyond it are left out")
	flag.IntVar(&o.fairness, "fairness", 10, "seconds over which eight streams are compared; 0 = not")
	flag.IntVar(&o.pairs, "pairs", 4, "pairs of figures of endpoints without a profile; 0 = none")
	flag.IntVar(&o.repeat, "repeat", 1, "times that each row is measured")
	o.profiles = []float64{1, 10, 100, 1000}
	flag.Func("profiles", "Mbit/s, with commas between; 1,10,100,1000 if left out", func(s string) error {
		o.profiles = nil
		for x := range strings.SplitSeq(s, ",") {
			mbit, err := strconv.ParseFloat(x, 64)
			if err != nil || !(mbit >= 0.01 && mbit <= 1e6) {
				return fmt.Errorf("%q is no rate in Mbit/s from 0.01 to 1,000,000", x)
			}
			o.profiles = append(o.profiles, mbit)
		}
		return nil
	})
	o.rows = regexp.MustCompile("")
	flag.Func("rows", "regular expression of the rows to measure, such as '^10 Mbit/s sends cubic, 8'", func(s string) (err error) {
		o.rows, err = regexp.Compile(s)
		return err
	})
	flag.Parse()
	switch {
	case o.driver != testcluster.DriverEBPF && o.driver != testcluster.DriverOVS:
		return errors.New("-driver is ebpf or ovs")
	case o.seconds < 1 || o.repeat < 1:
		return errors.New("-seconds and -repeat are at least 1")
	}
	return measure(ctx, os.Stdout, o)
}

// host is the host that is measured.
type host struct{ *rig.Host }

// rate gives a container a rate, or takes it away (nil).
func (r host) rate(ctx context.Context, i int, rate *desired.Rate) error {
	port := rig.Port(rig.Address(i))
	r.State.Bandwidth = r.State.Bandwidth.Delete(port)
	if rate != nil {
		r.State.Bandwidth = r.State.Bandwidth.Set(port, rate)
	}
	return r.Apply(ctx)
}

// runs are TCP's: bbr, which paces itself and so hides much, is beside the others.
var runs = []struct {
	control string
	streams int
}{{"cubic", 1}, {"cubic", 8}, {"reno", 1}, {"reno", 8}, {"bbr", 1}}

// want is what a row is to measure.
type want struct {
	mbit         float64
	way, traffic string
	streams      int // of TCP; 0 = UDP
	control      string
	seconds      int
}

// named reports whether a row is to be measured.
func (o options) named(x want) bool {
	return o.rows.MatchString(fmt.Sprintf("%g Mbit/s %s %s", x.mbit, x.way, x.traffic))
}

// wanted lists the rows of one profile and direction.
func (o options) wanted(mbit float64, way string) (out []want) {
	for _, x := range runs {
		out = append(out, want{mbit, way, fmt.Sprintf("%s, %d", x.control, x.streams), x.streams, x.control, o.seconds})
	}
	out = append(out, want{mbit, way, "UDP", 0, "", o.seconds})
	if way == sends && o.fairness > 0 {
		out = append(out, want{mbit, way, fmt.Sprintf("cubic, 8, over %d s", o.fairness), 8, "cubic", o.fairness})
	}
	return slices.DeleteFunc(out, func(x want) bool { return !o.named(x) })
}

// Directions, as rows name them.
const sends, receives = "sends", "receives"

func measure(ctx context.Context, w io.Writer, o options) (err error) {
	made, err := rig.One(ctx, "bandwidth", o.driver, 4)
	if err != nil {
		return err
	}
	r := host{made}
	defer func() { err = errors.Join(err, r.Close()) }()
	fmt.Fprint(w, "| profile | direction | traffic | lowest and highest second, % of the profile | round trip of a probe beside it, median / p99 / highest, ms | probes lost | a stream's share, lowest and highest, %, and Jain's index | |\n|---|---|---|---|---|---|---|---|\n")
	for _, mbit := range o.profiles {
		if mbit > o.highest {
			continue
		}
		limit := desired.Limit{Bits: uint64(mbit * 1e6)}
		for at, rate := range []desired.Rate{{Send: limit}, {Receive: limit}} {
			for _, x := range o.wanted(mbit, []string{sends, receives}[at]) {
				for range o.repeat {
					if err := one(ctx, w, r, at, rate, x); err != nil {
						return err
					}
				}
			}
		}
	}
	if err := together(ctx, w, r, o); err != nil {
		return err
	}
	return unlimited(ctx, w, r, o.pairs)
}

// besideFrom is the profile, Mbit/s, from which on a host may not get to it at all: what it
// gets without one is measured before and after each row of TCP.
const besideFrom = 1000

// one measures a row.
func one(ctx context.Context, w io.Writer, r host, at int, rate desired.Rate, x want) error {
	var without []float64
	bare := func() error {
		if x.mbit < besideFrom || x.streams == 0 {
			return nil
		}
		res, err := r.tcp(ctx, 0, 1, x.streams, x.control, 1)
		without = append(without, res.seconds...)
		return err
	}
	if err := bare(); err != nil {
		return err
	}
	if err := r.rate(ctx, at, &rate); err != nil {
		return err
	}
	var res result
	var err error
	if x.streams > 0 {
		res, err = r.tcp(ctx, 0, 1, x.streams, x.control, x.seconds)
	} else {
		res, err = r.udp(ctx, 0, 1, x.mbit, x.seconds)
	}
	if err = errors.Join(err, r.rate(ctx, at, nil)); err != nil {
		return err
	}
	if err := bare(); err != nil {
		return err
	}
	row(w, x, res, without)
	return nil
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

// unlimited measures two containers without a profile, alternately with no profile on the
// host and beside two idle containers that have one.
func unlimited(ctx context.Context, w io.Writer, r host, pairs int) error {
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
				alone := r.probe(ctx, 2, 3, time.Second, new(atomic.Uint64))
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
	verdict := "unchanged"
	if m := stats.Median(parts); m < 95 || m > 105 {
		verdict = "*differs*"
	}
	fmt.Fprintf(w, "| %s | %.0f | %.0f | %.1f, %.1f, %.1f | %s |\n", what, stats.Median(figures[0]), stats.Median(figures[1]), stats.Median(parts), slices.Min(parts), slices.Max(parts), verdict)
}

// together measures two containers with different profiles at once.
func together(ctx context.Context, w io.Writer, r host, o options) error {
	rows := []want{{mbit: 20}, {mbit: 200}}
	for i := range rows {
		rows[i] = want{rows[i].mbit, sends, "cubic, 1, beside the other of these two", 1, "cubic", o.seconds}
	}
	if !slices.ContainsFunc(rows, o.named) {
		return nil
	}
	for range o.repeat {
		for i, x := range rows {
			if err := r.rate(ctx, 2*i, &desired.Rate{Send: desired.Limit{Bits: uint64(x.mbit * 1e6)}}); err != nil {
				return err
			}
		}
		results := make([]result, len(rows))
		g, both := errgroup.WithContext(ctx)
		for i, x := range rows {
			g.Go(func() (err error) {
				results[i], err = r.tcp(both, 2*i, 2*i+1, x.streams, x.control, x.seconds)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i := range rows {
			if err := r.rate(ctx, 2*i, nil); err != nil {
				return err
			}
		}
		for i, x := range rows {
			row(w, x, results[i], nil)
		}
	}
	return nil
}

// row prints a run; what is not within 5 % of the profile (UDP: above it by 2 %), or waits
// too long, is said to be missed. without are Mbit/s of seconds without the profile.
func row(w io.Writer, x want, r result, without []float64) {
	low, high := 95.0, 105.0
	if x.streams == 0 {
		low, high = 0, 102
	}
	least, most := slices.Min(r.seconds)/x.mbit*100, slices.Max(r.seconds)/x.mbit*100
	verdict := "holds"
	if least < low || most > high {
		verdict = "*rate missed*"
	}
	waits, shares := "", ""
	if n := len(r.waits); n > 0 {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		p99 := r.waits[n*99/100]
		waits = fmt.Sprintf("%.2f / %.2f / %.2f", ms(r.waits[n/2]), ms(p99), ms(r.waits[n-1]))
		if want := 20 * time.Millisecond; p99 > want || x.mbit >= 100 && p99 > 5*time.Millisecond {
			verdict += ", *wait missed*"
		}
	}
	if len(without) > 0 {
		verdict += fmt.Sprintf("; %.0f %% of the %.0f Mbit/s without a profile", mean(r.seconds)/mean(without)*100, mean(without))
	}
	if len(r.shares) > 1 {
		shares = fmt.Sprintf("%.0f, %.0f, %.3f", slices.Min(r.shares)*100, slices.Max(r.shares)*100, jain(r.shares))
	}
	fmt.Fprintf(w, "| %g Mbit/s | %s | %s | %.1f, %.1f | %s | %d of %d | %s | %s |\n", x.mbit, x.way, x.traffic, least, most, waits, r.lost, r.lost+len(r.waits), shares, verdict)
}

func mean(of []float64) (sum float64) {
	for _, x := range of {
		sum += x
	}
	return sum / float64(len(of))
}
