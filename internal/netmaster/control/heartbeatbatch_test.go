package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// commits is the number of the store's last commit.
func (h *answerHosts) commits() store.Revision {
	h.t.Helper()
	rev, err := h.st.Update(h.t.Context(), func(tx store.Tx) error {
		return tables.HostLeases.Put(tx, tables.HostLease{Host: "counted", Installation: "i", Kept: true})
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return rev
}

// TestAnnouncerHeartbeatsShareCommits: a hundred hosts that answer, each for an address and at a time of its
// own, cost a netmaster some twenty commits a second, on a store that takes no more than
// Consul; each keeps its address; who is refused, or gives something back, is no matter to
// others.
func TestAnnouncerHeartbeatsShareCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		const n = 100
		all := poolOf(n)
		var hosts []model.HostName
		for i := range n {
			hosts = append(hosts, model.HostName(fmt.Sprint("h", i)))
		}
		h := newAnswerHostsOn(t, memory.NewWith(memory.Consul), 1, all, append(hosts, "thief")...)
		h.follow(ctx)
		defer synctest.Wait()
		defer cancel()
		for range 3 { // each is able to have its own alone
			for i, host := range hosts {
				h.tell(0, host, all[i])
			}
			time.Sleep(model.L2ReportInterval)
		}
		before := h.commits()
		var wg sync.WaitGroup
		var mu sync.Mutex // of seq
		const rounds = 8
		for i, host := range hosts {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * model.L2ReportInterval / n)
				for round := range rounds {
					mu.Lock()
					h.seq[host]++
					r := L2AnnouncerReport{Host: host, Installation: "i-" + string(host), Run: 1, Seq: h.seq[host], Able: []netip.Addr{all[i]}}
					mu.Unlock()
					switch {
					case round == 4 && i == 7: // somebody else's, in its name
						r.Installation = "i-thief"
						if held, _, err := h.masters[0].L2Announcers.Assign(ctx, Admin(), r); !errors.Is(err, model.ErrConflict) {
							t.Errorf("an installation that has not the name has %v, %v", held, err)
						}
					case round == 4 && i == 8:
						r.Able = nil
						if held, _, err := h.masters[0].L2Announcers.Assign(ctx, Admin(), r); err != nil || len(held) > 0 {
							t.Errorf("who is not able has %v, %v", held, err)
						}
					case round > 4 && i == 8:
					default:
						began := time.Now()
						held, _, err := h.masters[0].L2Announcers.Assign(ctx, Admin(), r)
						if err != nil || len(held) != 1 || held[0] != all[i] {
							t.Errorf("%s has %v, %v", host, held, err)
						}
						if waited := time.Since(began); waited > 2*heartbeatBatchInterval {
							t.Errorf("%s waited %v", host, waited)
						}
					}
					time.Sleep(model.L2ReportInterval)
				}
			})
		}
		began := time.Now()
		wg.Wait()
		second := float64(h.commits()-before) / time.Since(began).Seconds()
		if second > 25 {
			t.Errorf("%d hosts made %.0f commits a second", n, second)
		}
		t.Logf("%d hosts made %.1f commits a second", n, second)
		if got, ok := h.masters[0].view.Hosts.AnnouncerOf(all[8]), h.masters[0].view.Hosts.AnnouncerOf(all[9]); got != "" || ok != hosts[9] {
			t.Errorf("%q answers for what was given back, %q for what is kept", got, ok)
		}
	})
}

// TestFullHeartbeatBatchesAreSplit: more hosts at once than a transaction takes are several, and wait no
// longer.
func TestFullHeartbeatBatchesAreSplit(t *testing.T) {
	var s heartbeatBatches
	batches := map[*heartbeatBatch]bool{}
	for i := range 3 * heartbeatsPerBatch {
		b, first := s.join(L2AnnouncerReport{Host: model.HostName(fmt.Sprint("h", i))})
		if first != !batches[b] || first != (i%heartbeatsPerBatch == 0) {
			t.Fatalf("report %d: first is %v", i, first)
		}
		batches[b] = true
		if wait := time.Until(b.begins); wait > 0 {
			t.Errorf("report %d waits %v", i, wait)
		}
	}
	if b, _ := s.join(L2AnnouncerReport{Host: model.HostName(fmt.Sprint("h", 3*heartbeatsPerBatch-1))}); b != nil && batches[b] {
		t.Error("two reports of a host are in one transaction")
	}
	many := L2AnnouncerReport{Host: "many", Able: make([]netip.Addr, heartbeatBatchBytes/48)}
	a, _ := s.join(many)
	many.Host = "more"
	if b, first := s.join(many); b == a || !first {
		t.Error("reports of very many addresses are in one transaction")
	}
}
