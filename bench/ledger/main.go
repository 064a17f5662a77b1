package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
)

func main() { os.Exit(stats.Main("ledger", run)) }

// options are the flags.
type options struct {
	length   time.Duration
	out      string
	page     string
	bin      string
	again    bool
	busyLoad float64
}

func run(ctx context.Context) (err error) {
	var o options
	only := flag.String("only", "", "`rows` to run, separated by commas: words that their names begin with; empty = all")
	flag.DurationVar(&o.length, "for", 5*time.Minute, "how long a row is")
	flag.StringVar(&o.out, "out", "bench/results/ledger", "`directory` of the reports")
	flag.StringVar(&o.page, "page", "docs/reliability.md", "`file` whose table is made of the reports")
	flag.StringVar(&o.bin, "bin", "", "`directory` of the programs; empty = they are built")
	flag.BoolVar(&o.again, "again", false, "run rows too that have a report of the same code and at least that length")
	flag.Float64Var(&o.busyLoad, "busy", 4, "`load` of the machine, before a row, from which on its times are marked as not fair")
	list := flag.Bool("list", false, "print the rows, and run none")
	onlyPage := flag.Bool("write", false, "make the page's table of the reports, and run nothing")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: only flags are taken", flag.Arg(0))
	}
	if o.length < time.Second {
		return fmt.Errorf("-for %v: a row takes a second at least", o.length)
	}
	wanted := rows()
	if *only != "" {
		wanted = slices.DeleteFunc(wanted, func(r row) bool {
			return !slices.ContainsFunc(strings.Split(*only, ","), func(w string) bool { return strings.HasPrefix(r.name, w) })
		})
	}
	if len(wanted) == 0 {
		return fmt.Errorf("-only %s: no row's name begins so; -list prints them", *only)
	}
	switch {
	case *list:
		for _, r := range wanted {
			fmt.Println(r.name)
		}
		return nil
	case *onlyPage:
		return writePage(o.page, o.out)
	}
	bin, remove, err := rig.Programs(ctx, o.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	o.bin = bin
	code := stats.Code(ctx, "bench/ledger", "bench/rig", "test/kube/cluster")
	var errs []error
	for _, r := range wanted {
		if err := o.one(ctx, r, code); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// one runs a row, unless that has been done, and writes its report and the page.
func (o *options) one(ctx context.Context, r row, code string) error {
	had, err := read(o.out)
	if err != nil {
		return err
	}
	if old, ok := had[r.name]; ok && !o.again && code != "" && old.Code == code && old.Seconds >= int(o.length.Seconds()) {
		fmt.Printf("%s: has a report of this code\n", r.name)
		return nil
	}
	if missing := r.on.missing(r.driver); len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	rep := begin(ctx, r.name, code)
	if err := o.measure(ctx, r, rep); err != nil {
		return err
	}
	rep.Load[1] = stats.Load()
	rep.Busy = stats.Busy(rep.Load[0], o.busyLoad)
	fmt.Printf("%s\n", line(r, rep))
	return errors.Join(stats.WriteJSON(o.out, rep.Row, rep), writePage(o.page, o.out))
}

// measure builds the lab, kills for the row's length, and writes down what came of it.
func (o *options) measure(ctx context.Context, r row, rep *report) (err error) {
	w, err := build(ctx, o.bin, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	churn, err := startChurn(ctx, w, rep)
	if err != nil {
		return err
	}
	start := time.Now()
	aways, err := r.kills(ctx, w, start.Add(o.length))
	// What the last kill costs may come after it.
	pause(ctx, 2*time.Second)
	end := time.Now()
	if err := errors.Join(err, churn.finish()); err != nil {
		return err
	}
	rep.Seconds, rep.Kills = int(end.Sub(start).Seconds()), len(aways)
	for _, a := range aways {
		rep.Back = max(rep.Back, a.back.Sub(a.killed).Milliseconds())
	}
	// netplugin collects what it has forgotten after a minute.
	if rep.Leaks, err = w.leaks(ctx, 2*time.Minute); err != nil {
		return err
	}
	f := w.flows
	w.flows = nil
	err = f.stop()
	f.judge(&rep.traffic, start, end, aways)
	return err
}

// kills kills the row's component until a time.
func (r row) kills(ctx context.Context, w *world, until time.Time) (aways []away, err error) {
	if r.kill == nil {
		return nil, after(ctx, time.Until(until))
	}
	for time.Now().Before(until) {
		killed, err := r.kill(ctx, w)
		if err != nil {
			return aways, err
		}
		aways = append(aways, away{killed, time.Now()})
		if err := after(ctx, r.between); err != nil {
			return aways, err
		}
	}
	return aways, nil
}
