package conformance

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// withLog returns a random case in which each second rule is logged and each second
// policy audited. No two rules weigh the same: which of two such rules a data plane
// names is its own affair.
func withLog(c Case) Case {
	for i := range c.General {
		c.General[i].Audit = i%2 == 0
	}
	for i := range c.GeneralRules {
		c.GeneralRules[i].Priority, c.GeneralRules[i].Log = 1+i, i%2 == 0
	}
	return c
}

// testRandomAuditRules compares the reports of random policies that are logged and audited, for
// established and for new connections. Each case begins with an empty data plane, since
// conntrack forgets sooner than the reference.
func testRandomAuditRules(t *testing.T, h Harness) {
	t.Helper()
	top := Labelled(StandardTopology())
	b, w := sending(t, h, top, Case{})
	if c := b.drv.Capabilities(); !c.Log || !c.Audit || !c.AuditEstablished {
		t.Skip("the driver tells less")
	}
	n := 16
	if h.Slow {
		n = 4
	}
	t.Logf("random cases, which -seed %d repeats", Seed())
	sport, told := uint16(30000), 0
	for i, c := range LabelCases(top, Seed(), n) {
		c = withLog(c)
		if err := w.Switch(c); err != nil {
			t.Fatal(err)
		}
		pic := w.Desired["h1"]
		b.apply(t, desired.Host{Name: pic.Name, VTEP: pic.VTEP, FwdMode: pic.FwdMode, ArpMode: pic.ArpMode})
		b.apply(t, pic)
		send := func() {
			for j, x := range exchanges(top, &sport) {
				if j/2%5 == i%5 { // a request and its answer
					b.compare(t, c.Name+": "+x.name, x.packet)
				}
			}
		}
		send()
		ctx, cancel := context.WithCancel(t.Context())
		want, got := b.monitors(ctx, t, driver.MonitorOptions{NoDrops: true})
		send()
		told += wantEvents(t, c.Name, want, got)
		cancel()
		drain(t, got)
		drain(t, want)
		if t.Failed() {
			t.FailNow()
		}
	}
	if told == 0 {
		t.Error("nothing was told of")
	}
}

// wantEvents expects as many connections of each kind as the reference data plane told of,
// in any order and by however many events; it returns how many. As many may be missing as the
// driver says it has lost.
func wantEvents(t *testing.T, what string, want, got <-chan driver.FlowEvent) (n int) {
	t.Helper()
	count := func(sum map[string]uint64, e driver.FlowEvent) {
		by := e.Count
		e.Time, e.Count, e.SrcPort = time.Time{}, 0, 0
		sum[fmt.Sprintf("%+v", e)] += by
	}
	expected, seen := map[string]uint64{}, map[string]uint64{}
	for len(want) > 0 {
		count(expected, <-want)
		n++
	}
	missing := func() (n uint64) {
		for k, v := range expected {
			n += v - min(v, seen[k])
		}
		return n
	}
	asExpected := func(k string, v uint64) bool { return v <= expected[k] }
	lost := uint64(0)
	for late := time.After(eventPatience); missing() > lost; {
		select {
		case e := <-got:
			if e.Kind == driver.FlowLost {
				lost += e.Count
				t.Logf("%s: the driver has lost %d packets' events", what, e.Count)
				continue
			}
			count(seen, e)
		case <-late:
			t.Errorf("%s: told (-want +got):\n%s", what, cmp.Diff(expected, seen))
			return n
		}
	}
	if maps.DeleteFunc(seen, asExpected); len(seen) > 0 {
		t.Errorf("%s: told too often, or without reason: %v", what, seen)
	}
	return n
}
