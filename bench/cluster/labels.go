package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// labelSizes are how many policies a tenth and the whole have; labelLimit is how many
// times the tenth's time the whole may take.
var labelSizes = [2]int{100, 1000}

const labelLimit = 2.0

// labelHost is a host with a driver that knows a labelled tenant.
type labelHost struct {
	*labelled
	host *testcluster.Host
	drv  driver.Driver
	rev  int64
}

// taken is what one change took, in microseconds, and the driver's writes.
type taken struct{ compiled, applied, writes float64 }

// apply compiles and applies what is there now.
func (h *labelHost) apply(ctx context.Context) (t taken, err error) {
	h.rev++
	return t, h.host.NS.Do(func() error {
		start := time.Now()
		pic, problems := h.c.Compile(h.rev)
		mid := time.Now()
		rep, err := h.drv.Apply(ctx, pic)
		end := time.Now()
		t = taken{micro(mid.Sub(start)), micro(end.Sub(mid)), float64(rep.Changes)}
		for _, p := range problems {
			err = errors.Join(err, errors.New(p.String()))
		}
		if err == nil {
			err = rig.Failed(rep)
		}
		return err
	})
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// labels measures changes among policies by label on both drivers, at a tenth of
// a size and at the whole in turn.
func (b *bench) labels(ctx context.Context) error {
	var missed []string
	for i, name := range []string{testcluster.DriverEBPF, testcluster.DriverOVS} {
		l, err := b.lab(ctx, testcluster.Config{Name: fmt.Sprintf("blab%d", i), Hosts: len(labelSizes), Bare: true, Driver: name})
		if err != nil {
			return err
		}
		m, err := b.labelsOn(ctx, l, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		missed = append(missed, m...)
	}
	b.report.misses(missed)
	return nil
}

func (b *bench) labelsOn(ctx context.Context, l *testcluster.Lab, name string) (missed []string, err error) {
	var hosts [len(labelSizes)]*labelHost
	for i, policies := range labelSizes {
		h := &labelHost{labelled: newLabelled(policies, l.Hosts()[i].Address), host: l.Hosts()[i]}
		if h.drv, err = rig.Open(ctx, l, h.host); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, h.drv.Close()) }()
		if err := h.interfaces(ctx); err != nil {
			return nil, err
		}
		first, err := h.apply(ctx)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%s: %d policies, %d identities, %d endpoints: compiled in %.0f ms, applied in %.0f ms\n",
			name, policies, h.identities(), h.endpoints(), first.compiled/1000, first.applied/1000)
		hosts[i] = h
	}
	runtime.GC() // the waste of the preparation is not the subject
	found, err := b.takeTurns(ctx, hosts)
	if err != nil {
		return nil, err
	}
	b.report.table(fmt.Sprintf("Driver %s: %d policies, %d identities, %d endpoints, and a tenth of each; µs, medians of %d rounds; the ratio is of compile and driver together, with its 95 %% interval",
		name, labelSizes[1], hosts[1].identities(), hosts[1].endpoints(), len(found[0][0])),
		"change", "compile: a tenth", "the whole", "driver: a tenth", "the whole", "ratio", "writes: a tenth", "the whole")
	for i, c := range labelChanges {
		col := func(size int, f func(taken) float64) (out []float64) {
			for _, t := range found[i][size] {
				out = append(out, f(t))
			}
			return out
		}
		cells := []any{c.name}
		for _, f := range []func(taken) float64{func(t taken) float64 { return t.compiled }, func(t taken) float64 { return t.applied }} {
			for size := range labelSizes {
				cells = append(cells, fmt.Sprintf("%.0f", stats.Median(col(size, f))))
			}
		}
		sum := func(t taken) float64 { return t.compiled + t.applied }
		r := stats.Compare(col(1, sum), col(0, sum))
		cells = append(cells, r)
		for size := range labelSizes {
			cells = append(cells, stats.Median(col(size, func(t taken) float64 { return t.writes })))
		}
		b.report.row(cells...)
		if r.Median > labelLimit {
			missed = append(missed, fmt.Sprintf("%s on %s: %s, wanted at most %g", c.name, name, r, labelLimit))
		}
	}
	return missed, nil
}

// takeTurns makes each change once a round, at each size (the sizes take turns in being
// first), and then waits a while: changes come singly, and what a driver or switch
// does later is no part of the next one. It returns what each took, by change and
// size.
func (b *bench) takeTurns(ctx context.Context, hosts [len(labelSizes)]*labelHost) (found [][len(labelSizes)][]taken, err error) {
	found = make([][len(labelSizes)][]taken, len(labelChanges))
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for round := range b.n(15) + 2 { // the first two rounds make what later ones find
		for i, c := range labelChanges {
			for j := range hosts {
				size := (round + j) % len(hosts)
				c.do(hosts[size].labelled, round)
				t, err := hosts[size].apply(ctx)
				switch {
				case err != nil:
					return nil, fmt.Errorf("%s: %w", c.name, err)
				case round < 2:
				case t.writes == 0:
					return nil, fmt.Errorf("%s: nothing changed", c.name)
				default:
					found[i][size] = append(found[i][size], t)
				}
			}
			for _, h := range hosts {
				if c.undo != nil {
					c.undo(h.labelled, round)
					if _, err := h.apply(ctx); err != nil {
						return nil, fmt.Errorf("%s, undone: %w", c.name, err)
					}
				}
			}
			tick.Reset(250 * time.Millisecond)
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-tick.C:
			}
		}
	}
	return found, nil
}

// interfaces makes the interfaces of all endpoints that are, or will be, on this host.
func (h *labelHost) interfaces(ctx context.Context) error {
	for i := range locals + 1 {
		e := h.endpoint(i, 0)
		if i == locals {
			e = h.extra(true, 0)
		}
		peer := fmt.Sprint("peer", i)
		if err := rig.IP(ctx, h.host.NS, "link add "+compile.IfName(e.Key)+" up type veth peer name "+peer, "link set "+peer+" up"); err != nil {
			return err
		}
	}
	return nil
}
