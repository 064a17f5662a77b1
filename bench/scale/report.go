package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
)

// report is what one row has found.
type report struct {
	Row     string    `json:"row"`
	Sizes   sizes     `json:"sizes"`
	First   bool      `json:"onlyFirstAgent,omitempty"`
	Commit  string    `json:"commit"`
	Dirty   bool      `json:"uncommitted,omitempty"` // what ran was not committed whole
	Date    time.Time `json:"date"`
	Machine string    `json:"machine"`
	Load    [2]string `json:"load"` // of the machine before and after: 1, 5, 15 minutes
	Busy    bool      `json:"busy"` // others worked on the machine: times are not fair
	Whole   float64   `json:"wholeSeconds"`

	Ready    float64            `json:"readySeconds"` // until all agents had what there was
	Arrivals arrivals           `json:"arrivals"`     // from the API's answer to the driver
	API      answers            `json:"api"`
	Quiet    rates              `json:"quiet"`  // while nothing happened
	Busily   rates              `json:"busily"` // while endpoints came and went
	Memory   map[string]float64 `json:"memoryMB"`
	Heap     float64            `json:"heapOfAgentMB"`
	Said     map[string]int     `json:"warnings,omitempty"` // of simulated agents
}

// rates are what was used in a time.
type rates struct {
	Seconds float64 `json:"seconds"`
	Changes int     `json:"changes"`
	// Of one agent, on the average, a second.
	Wire    float64 `json:"agentBytesPerSecond"` // over its connection to the store
	Batches float64 `json:"agentWakeupsPerSecond"`
	Passes  float64 `json:"agentPassesPerSecond"`
	// Of one agent, for one change; nothing without changes.
	WireOfChange    float64 `json:"agentBytesPerChange"`
	PayloadOfChange float64 `json:"agentPayloadPerChange"` // keys and values alone
	WakeupsOfChange float64 `json:"agentWakeupsPerChange"`
	// Of each process: parts of one processor, and how often threads waited a second.
	Processor map[string]float64 `json:"processors"`
	Waits     map[string]float64 `json:"waitsPerSecond"`
	// Of each process, for one change, in milliseconds of a processor.
	ProcessorOfChange map[string]float64 `json:"processorMsPerChange"`
}

func (r reading) rates(agents, changes int) rates {
	seconds, n := r.at.Seconds(), float64(agents)
	out := rates{
		Seconds: seconds, Changes: changes, Wire: float64(r.counts.Wire) / seconds / n,
		Batches: float64(r.counts.Batches) / seconds / n, Passes: float64(r.counts.Passes) / seconds / n,
		Processor: map[string]float64{}, Waits: map[string]float64{}, ProcessorOfChange: map[string]float64{},
	}
	for name, d := range r.used {
		out.Processor[name] = d.Seconds() / seconds
		out.Waits[name] = float64(r.switches[name]) / seconds
		if changes > 0 {
			out.ProcessorOfChange[name] = d.Seconds() * 1000 / float64(changes)
		}
	}
	if changes > 0 {
		of := n * float64(changes)
		out.WireOfChange, out.PayloadOfChange, out.WakeupsOfChange = float64(r.counts.Wire)/of, float64(r.counts.Payload)/of, float64(r.counts.Batches)/of
	}
	return out
}

// begin makes a row's report with what it is about.
func begin(ctx context.Context, r row) *report {
	return &report{
		Row: r.name, Sizes: r.sizes, First: r.first, Commit: stats.Commit(ctx),
		Dirty:   stats.Output(ctx, "git", "status", "--porcelain", "--", "api", "cmd", "internal", "bench/scale", "go.mod") != "",
		Date:    time.Now().UTC().Truncate(time.Second),
		Machine: stats.Machine(ctx),
		Load:    [2]string{stats.Load()},
	}
}

// agents is how many simulated agents there are.
func (r *report) agents() int {
	if r.First {
		return 1
	}
	return r.Sizes.Agents
}

// target is the most that a figure may be.
type target struct {
	what string
	is   func(*report) float64
	most float64
}

// targets are those of row wide; the others have none but that all arrives.
var targets = []target{
	{"p50 (ms)", func(r *report) float64 { return r.Arrivals.Last.P50 }, 100},
	{"p99 (ms)", func(r *report) float64 { return r.Arrivals.Last.P99 }, 1000},
	{"netmaster (MB)", func(r *report) float64 { return r.Memory["netmaster"] }, 500},
	{"netplugin (MB)", func(r *report) float64 { return r.Memory["netplugin"] }, 60},
}

// misses lists the figures of a report that miss their targets.
func (r *report) misses() (out []string) {
	if got := r.API.Second; !r.First && got < .95*r.Sizes.Changes {
		out = append(out, fmt.Sprintf("%.1f changes a second of %g", got, r.Sizes.Changes))
	}
	if n := r.Arrivals.Missing; n > 0 {
		out = append(out, fmt.Sprintf("%d arrivals are missing", n))
	}
	for _, w := range targets {
		if is := w.is(r); is > w.most && strings.HasSuffix(r.Row, "wide") {
			out = append(out, fmt.Sprintf("%s %.0f, at most %.0f wanted", w.what, is, w.most))
		}
	}
	return out
}

// printTable prints what rows have found beside each other.
func printTable(out io.Writer, all []*report) {
	if len(all) == 0 {
		return
	}
	table := func(header string, cells func(*report) []any) {
		fmt.Fprint(out, "\n", stats.Header(strings.Split(header, " | ")...))
		for _, r := range all {
			fmt.Fprint(out, stats.Row(append([]any{r.Row}, cells(r)...)...))
		}
	}
	num := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	table("row | agents | networks | endpoints | rules | tenants | changes/s wanted | reached | API p50 ms | p99 | ready after s | commit | date | load before", func(r *report) []any {
		return []any{
			r.agents(), r.Sizes.Networks, r.Sizes.Endpoints, r.Sizes.Rules, r.Sizes.Tenants, r.Sizes.Changes, num(r.API.Second), num(r.API.Took.P50), num(r.API.Took.P99),
			num(r.Ready), r.Commit, r.Date.Format("2006-01-02 15:04"), r.Load[0],
		}
	})
	table("row, from the API's answer until the driver has it (ms) | every agent p50 | p99 | most | last agent p50 | p99 | most | from the request, last agent p50 | p99 | missing | skipped", func(r *report) []any {
		a := r.Arrivals
		return []any{num(a.Each.P50), num(a.Each.P99), num(a.Each.Most), num(a.Last.P50), num(a.Last.P99), num(a.Last.Most), num(a.Asked.P50), num(a.Asked.P99), a.Missing, a.Skipped}
	})
	table("row, one agent | bytes/s, nothing happens | bytes/s | bytes a change | of which keys and values | wake-ups a change | wake-ups/s | passes/s | heap MB", func(r *report) []any {
		b := r.Busily
		return []any{num(r.Quiet.Wire), num(b.Wire), num(b.WireOfChange), num(b.PayloadOfChange), strconv.FormatFloat(b.WakeupsOfChange, 'f', 2, 64), num(b.Batches), num(b.Passes), num(r.Heap)}
	})
	names := map[string]bool{}
	for _, r := range all {
		for name := range r.Quiet.Processor {
			names[name] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	for _, t := range []struct {
		what string
		of   func(*report, string) float64
	}{
		{"processors, nothing happens", func(r *report, n string) float64 { return r.Quiet.Processor[n] }},
		{"processors", func(r *report, n string) float64 { return r.Busily.Processor[n] }},
		{"ms of a processor a change", func(r *report, n string) float64 { return r.Busily.ProcessorOfChange[n] }},
		{"waits of threads a second", func(r *report, n string) float64 { return r.Busily.Waits[n] }},
		{"anonymous memory (MB)", func(r *report, n string) float64 { return r.Memory[n] }},
	} {
		table("row, "+t.what+" | "+strings.Join(sorted, " | "), func(r *report) (cells []any) {
			for _, n := range sorted {
				cells = append(cells, strconv.FormatFloat(t.of(r, n), 'f', 3, 64))
			}
			return cells
		})
	}
	fmt.Fprintln(out)
	for _, r := range all {
		if m := r.misses(); len(m) > 0 {
			fmt.Fprintf(out, "%s, missed: %s.\n", r.Row, strings.Join(m, "; "))
		}
		if r.Busy {
			fmt.Fprintf(out, "%s: the machine was busy before; times are not fair.\n", r.Row)
		}
	}
}
