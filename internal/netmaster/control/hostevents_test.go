package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestHostStatesAreEvents: that a host is away, is back, has gone back from a change by itself and
// that its endpoints are given up are events of it, each once; that more than half are
// away is the event of none.
func TestHostStatesAreEvents(t *testing.T) {
	for away, want := range map[int]string{
		1: "h1 HostAway true, h1 EndpointsGivenUp true, h4 RolledBack true, h1 HostBack false",
		3: "h4 RolledBack true, h1 HostBack false, h2 HostBack false, h3 HostBack false",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			ctx, cancel := context.WithCancel(t.Context())
			w := c.Hosts.NewHostWatch()
			var mu sync.Mutex
			var got []string
			w.OnEvent = func(e liveness.Event) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %s %v", e.Host, e.Reason, e.Warning))
				if e.Note == "" || e.Reason == "RolledBack" && e.Note != "by itself" {
					t.Errorf("%+v", e)
				}
			}
			var running sync.WaitGroup
			running.Go(func() { c.ok(w.Run(ctx)) })
			reports := hostsOf(c, 4)
			l := lead(c, w, time.Minute)
			running.Go(func() { w.ReportEvents(ctx) })
			speak := func(from []HostReport) {
				for range 60 {
					for _, r := range from {
						_, _ = c.HostLeases.RenewHost(ctx, Admin(), r)
					}
					pass(2 * time.Second)
				}
			}
			speak(reports[away:])
			for range 2 { // the same event is sent once
				_, err := c.st.Update(ctx, func(tx store.Tx) error {
					return tables.HostStatuses.Put(tx, HostStatus{Host: "h4", Ready: true, Conditions: []tables.HostCondition{
						{Name: "others", Severity: "notice", Message: "x"}, {Name: "rolled-back", Severity: "warning", Message: "by itself"},
					}})
				})
				c.ok(err)
				pass(time.Second)
			}
			speak(reports)
			mu.Lock()
			slices.Sort(got[min(len(got), strings.Count(want, ",")+1-away):])
			if text := strings.Join(got, ", "); text != want {
				t.Errorf("%d of 4 are away: %s", away, text)
			}
			mu.Unlock()
			l.stop()
			cancel()
			running.Wait()
			c.stop()
		})
	}
}
