package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func main() { os.Exit(stats.Main("scale", run)) }

// row is one measurement.
type row struct {
	name string
	sizes
	first bool // only the first agent is there, whose heap is looked at; nothing comes or goes
}

// wide is the row of many networks, each on few hosts.
func wide() sizes {
	return sizes{Agents: 1000, Networks: 500, Spread: 20, Endpoints: 50_000, Rules: 5_000, Tenants: 50, Changes: 100, For: time.Minute}
}

// hard is the row of one network on all hosts.
func hard(agents int) sizes {
	return sizes{Agents: agents, Networks: 1, Spread: agents, Endpoints: 1000, Rules: 10, Tenants: 1, Changes: 10, For: time.Minute}
}

// rows are all there are. Small ones take a minute each, and tell whether it runs.
func rows(small bool) []row {
	if small {
		w := sizes{Agents: 20, Networks: 10, Spread: 4, Endpoints: 500, Rules: 50, Tenants: 5, Changes: 5, For: 20 * time.Second}
		one := w
		one.Tenants = 1
		out := []row{{name: "wide", sizes: w}, {name: "one-tenant", sizes: one}}
		for _, n := range []int{5, 10, 20} {
			h := hard(n)
			h.Endpoints, h.Changes, h.For = 100, 5, 15*time.Second
			out = append(out, row{name: fmt.Sprint("hard-", n), sizes: h})
		}
		return append(out, row{name: "heap", sizes: sizes{Agents: 20, Networks: 10, Spread: 20, Endpoints: 1000, Rules: 50, Tenants: 1, Changes: 1, For: time.Second}, first: true})
	}
	// What a tenant has beside endpoints concerns all of its hosts: 1,000 agents of one
	// tenant with 5,000 rules would need more memory than machines have. So this is a tenth.
	one := wide()
	one.Agents, one.Networks, one.Endpoints, one.Rules, one.Tenants, one.Changes = 100, 50, 5_000, 500, 1, 10
	out := []row{{name: "wide", sizes: wide()}, {name: "one-tenant", sizes: one}}
	for _, n := range []int{100, 300, 1000} {
		out = append(out, row{name: fmt.Sprint("hard-", n), sizes: hard(n)})
	}
	return append(out, row{name: "heap", sizes: sizes{Agents: 20, Networks: 500, Spread: 20, Endpoints: 20_000, Rules: 2_000, Tenants: 1, Changes: 1, For: time.Second}, first: true})
}

// options are the flags.
type options struct {
	out, bin, real, heap string
	busyLoad             float64
	relay                bool
}

func run(ctx context.Context) (err error) {
	if len(os.Args) == 3 && os.Args[1] == simulateWord {
		var o orders
		if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
			return err
		}
		return simulate(ctx, o, os.Stdin, os.Stdout)
	}
	var o options
	only := flag.String("only", "wide,hard", "`rows` to run, separated by commas; hard = all that are called so; -list prints them")
	small := flag.Bool("small", false, "20 agents and 500 endpoints, and so on: a minute a row, to see that it runs")
	flag.StringVar(&o.out, "out", "", "`directory` under which scale/ROW.json is written; empty = print only")
	flag.StringVar(&o.bin, "bin", "", "`directory` of the programs; empty = they are built")
	flag.StringVar(&o.real, "real", testcluster.DriverEBPF, "data plane of the real netplugin beside the simulated ones: ebpf, ovs or none")
	flag.StringVar(&o.heap, "heap", "", "`file` for a profile of the simulated agents' heap (go tool pprof); of the last row that runs")
	flag.Float64Var(&o.busyLoad, "busy", 2, "`load` of the machine, before a row, from which on its times are marked as not fair")
	flag.BoolVar(&o.relay, "relay", false, "simulated agents mirror from netmaster, as hosts with a certificate do, in place of the store; rows are then called NAME-relay")
	list := flag.Bool("list", false, "print the rows with their sizes, and run none")
	var given sizes
	flag.IntVar(&given.Agents, "agents", 0, "in place of the rows' own: simulated agents; on one network in row hard")
	flag.IntVar(&given.Networks, "networks", 0, "likewise: networks")
	flag.IntVar(&given.Spread, "spread", 0, "likewise: hosts that each network is on")
	flag.IntVar(&given.Endpoints, "endpoints", 0, "likewise: endpoints, from the beginning")
	flag.IntVar(&given.Rules, "rules", 0, "likewise: rules")
	flag.IntVar(&given.Tenants, "tenants", 0, "likewise: tenants")
	flag.IntVar(&given.Labels, "labels", 0, "sets of labels in a tenant, one on each endpoint; 0 = none have labels")
	flag.Float64Var(&given.Changes, "changes", 0, "likewise: endpoints that come or go, a second")
	flag.DurationVar(&given.For, "for", 0, "likewise: how long they come and go")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: only flags are taken", flag.Arg(0))
	}
	if !slices.Contains([]string{testcluster.DriverEBPF, testcluster.DriverOVS, "none"}, o.real) {
		return fmt.Errorf("-real %s: must be ebpf, ovs or none", o.real)
	}
	wanted := slices.DeleteFunc(rows(*small), func(r row) bool {
		return !*list && !slices.ContainsFunc(strings.Split(*only, ","), func(w string) bool { return r.name == w || strings.HasPrefix(r.name, w+"-") })
	})
	if len(wanted) == 0 {
		return fmt.Errorf("-only %s: there is no such row; -list prints them", *only)
	}
	for i := range wanted {
		wanted[i].replace(given)
		if err := wanted[i].check(); err != nil {
			return fmt.Errorf("%s: %w", wanted[i].name, err)
		}
		if *small {
			wanted[i].name = "small-" + wanted[i].name
		}
		if o.relay {
			wanted[i].name += "-relay"
		}
		if *list {
			fmt.Printf("%s: %+v\n", wanted[i].name, wanted[i].sizes)
		}
	}
	if *list {
		return nil
	}
	bin, remove, err := rig.Programs(ctx, o.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	o.bin = bin
	var reports []*report
	var errs []error
	for _, r := range wanted {
		rep, err := o.one(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
		} else {
			reports = append(reports, rep)
		}
		if ctx.Err() != nil {
			break
		}
	}
	printTable(os.Stdout, reports)
	return errors.Join(errs...)
}

// replace puts what was given in place of what there is.
func (s *sizes) replace(given sizes) {
	all := s.Spread == s.Agents
	for _, f := range []struct{ to, from *int }{
		{&s.Agents, &given.Agents}, {&s.Networks, &given.Networks}, {&s.Endpoints, &given.Endpoints}, {&s.Rules, &given.Rules}, {&s.Tenants, &given.Tenants}, {&s.Labels, &given.Labels},
	} {
		if *f.from != 0 {
			*f.to = *f.from
		}
	}
	if given.Changes != 0 {
		s.Changes = given.Changes
	}
	if given.For != 0 {
		s.For = given.For
	}
	switch {
	case given.Spread != 0:
		s.Spread = given.Spread
	case all:
		s.Spread = s.Agents
	}
}
