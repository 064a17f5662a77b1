package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// answerHosts are hosts that could answer for addresses, as netmasters see them.
type answerHosts struct {
	t       *testing.T
	st      *memory.Store
	masters []*Controller
	seq     map[model.HostName]uint64
	until   map[model.HostName]map[netip.Addr]time.Time // by their own clocks
	taken   []netip.Addr                                // by the last report
}

func newAnswerHosts(t *testing.T, masters int, addrs []netip.Addr, hosts ...model.HostName) *answerHosts {
	t.Helper()
	return newAnswerHostsOn(t, memory.New(), masters, addrs, hosts...)
}

func newAnswerHostsOn(t *testing.T, st *memory.Store, masters int, addrs []netip.Addr, hosts ...model.HostName) *answerHosts {
	t.Helper()
	h := &answerHosts{t: t, st: st, seq: map[model.HostName]uint64{}, until: map[model.HostName]map[netip.Addr]time.Time{}}
	var err error
	for part := range slices.Chunk(hosts, 10) {
		if err == nil {
			_, err = h.st.Update(t.Context(), func(tx store.Tx) error {
				for _, name := range part {
					if err := tables.HostLeases.Put(tx, tables.HostLease{Host: name, Installation: "i-" + string(name), Kept: true}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	for part := range slices.Chunk(addrs, 10) {
		if err == nil {
			_, err = h.st.Update(t.Context(), func(tx store.Tx) error {
				for _, a := range part {
					if err := tables.BalancedAddrs.Create(tx, tables.Balanced{Addr: a, Service: model.ClusterServiceKey{Namespace: "ns", Name: "s"}}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for range masters {
		h.masters = append(h.masters, New(h.st, Options{}))
	}
	return h
}

// follow has the netmasters follow the store until the test ends.
func (h *answerHosts) follow(ctx context.Context) {
	for _, m := range h.masters {
		go func() { _ = m.Run(ctx) }()
	}
	synctest.Wait()
}

func (h *answerHosts) ask(master int, host model.HostName, able ...netip.Addr) ([]netip.Addr, error) {
	h.seq[host]++
	r := L2AnnouncerReport{Host: host, Installation: "i-" + string(host), Run: 1, Seq: h.seq[host], Able: able}
	held, taken, err := h.masters[master].L2Announcers.Assign(h.t.Context(), Admin(), r)
	h.taken = taken
	return held, err
}

// tell has a host report to a netmaster, and holds that no two hosts answer.
func (h *answerHosts) tell(master int, host model.HostName, able ...netip.Addr) []netip.Addr {
	h.t.Helper()
	asked := time.Now()
	for a := range h.until[host] {
		if !slices.Contains(able, a) {
			delete(h.until[host], a)
		}
	}
	held, err := h.ask(master, host, able...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.until[host] = map[netip.Addr]time.Time{}
	for _, a := range held {
		h.until[host][a] = asked.Add(model.L2LeaseTime)
		for other, until := range h.until {
			if other != host && until[a].After(time.Now()) {
				h.t.Errorf("%s and %s both answer for %s", host, other, a)
			}
		}
	}
	synctest.Wait() // the mirrors follow
	return held
}

func poolOf(n int) (out []netip.Addr) {
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)}))
	}
	return out
}

// TestOneHostAnnouncesAnAddress: addresses are spread over the hosts that could answer; a host that is
// silent loses them within 3 s, one that says that it is not able any more at once; and
// never do two answer, whichever netmaster each asks.
func TestOneHostAnnouncesAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		all := poolOf(40)
		h := newAnswerHosts(t, 2, all, "h1", "h2", "h3")
		h.follow(ctx)
		defer synctest.Wait()
		defer cancel()
		held := map[model.HostName][]netip.Addr{}
		round := func(able []netip.Addr, hosts ...model.HostName) {
			t.Helper()
			for _, host := range hosts {
				held[host] = h.tell(0, host, able...)
			}
			time.Sleep(model.L2ReportInterval)
		}
		for range 3 {
			round(all, "h1", "h2", "h3")
		}
		n := 0
		for host, has := range held {
			if n += len(has); len(has) < 6 {
				t.Errorf("%s answers for %d of %d", host, len(has), len(all))
			}
		}
		if n != len(all) {
			t.Fatalf("%d of %d are answered for: %v", n, len(all), held)
		}
		if by := h.masters[1].view.Hosts.AnnouncerOf(held["h2"][0]); by != "h2" {
			t.Errorf("the other netmaster sees %q answer for %s", by, held["h2"][0])
		}
		// One dies, and with it the netmaster that was asked; what others have stays theirs.
		before := slices.Clone(held["h2"])
		died := time.Now()
		for len(held["h2"])+len(held["h3"]) < len(all) {
			for _, host := range []model.HostName{"h2", "h3"} {
				held[host] = h.tell(1, host, all...)
			}
			if time.Since(died) > 3*time.Second {
				t.Fatalf("after %v: %v", time.Since(died), held)
			}
			time.Sleep(model.L2ReportInterval)
		}
		for _, a := range before {
			if !slices.Contains(held["h2"], a) {
				t.Errorf("h2 lost %s, which it had", a)
			}
		}
		if len(held["h2"]) == len(before) {
			t.Error("h3 has got all that h1 had")
		}
		// One has no link any more.
		held["h2"] = h.tell(1, "h2")
		if len(held["h2"]) > 0 {
			t.Errorf("h2 is not able, and has %v", held["h2"])
		}
		time.Sleep(model.L2ReportInterval)
		for range 4 {
			h.tell(1, "h2")
			held["h3"] = h.tell(1, "h3", all...)
			time.Sleep(model.L2ReportInterval)
		}
		if len(held["h3"]) != len(all) {
			t.Errorf("h3 has %d of %d", len(held["h3"]), len(all))
		}
		// It comes back, and takes nothing that is answered for.
		if got := h.tell(0, "h1", all...); len(got) > 0 {
			t.Errorf("h1 is back, and took %v", got)
		}
		// Unassigned addresses of the pool get no answers.
		for range 3 {
			time.Sleep(model.L2ReportInterval)
			if got := h.tell(0, "h1", netip.MustParseAddr("198.51.100.1")); len(got) > 0 {
				t.Errorf("h1 has %v", got)
			}
		}
	})
}

// TestHostTakesNoAddressThatAnotherAnswersFor: a host gets the load balancers' addresses that
// no living host has, which are reported for the audit log, and no other addresses.
func TestHostTakesNoAddressThatAnotherAnswersFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		all := poolOf(4)
		h := newAnswerHosts(t, 1, all, "h1", "h2")
		h.follow(ctx)
		defer synctest.Wait()
		defer cancel()
		for range 3 {
			h.tell(0, "h1", all[:3]...)
			time.Sleep(model.L2ReportInterval)
		}
		stranger := netip.MustParseAddr("198.51.100.1")
		var taken []netip.Addr
		for range 20 {
			h.tell(0, "h1", all[:3]...)
			held := h.tell(0, "h2", append(slices.Clone(all), stranger)...)
			taken = append(taken, h.taken...)
			if !slices.Equal(held, taken) {
				t.Fatalf("h2 has %v, and took %v", held, taken)
			}
			time.Sleep(model.L2ReportInterval)
		}
		if !slices.Equal(taken, all[3:]) {
			t.Errorf("h2 took %v, want %v", taken, all[3:])
		}
	})
}

// TestOutdatedAnnouncerReportsChangeNothing: what is heard late changes nothing, and neither does who has not the
// host's name.
func TestOutdatedAnnouncerReportsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		all := poolOf(1)
		h := newAnswerHosts(t, 2, all, "h1")
		h.follow(ctx)
		defer synctest.Wait()
		defer cancel()
		for range 3 {
			h.tell(0, "h1", all...)
			time.Sleep(model.L2ReportInterval)
		}
		for what, r := range map[string]L2AnnouncerReport{
			"an earlier report":    {Host: "h1", Installation: "i-h1", Run: 1, Seq: 1},
			"an earlier run":       {Host: "h1", Installation: "i-h1", Run: 0, Seq: 9},
			"another installation": {Host: "h1", Installation: "x", Run: 1, Seq: 9},
		} {
			if held, _, err := h.masters[1].L2Announcers.Assign(ctx, Admin(), r); err == nil {
				t.Errorf("%s: %v", what, held)
			}
		}
		if held := h.tell(1, "h1", all...); len(held) != 1 {
			t.Errorf("it has %v", held)
		}
		r := L2AnnouncerReport{Host: "h1", Installation: "i-h1", Run: 2, Seq: 1, Able: all}
		if held, _, err := h.masters[1].L2Announcers.Assign(ctx, Admin(), r); err != nil || len(held) != 1 {
			t.Errorf("the next run has %v, %v", held, err)
		}
	})
}

// TestLaggingNetmasterTakesNoAddresses: a netmaster whose mirror stands still takes nothing from a host that
// lives.
func TestLaggingNetmasterTakesNoAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		all := poolOf(3)
		h := newAnswerHosts(t, 2, all, "h1", "h2")
		bctx, stop := context.WithCancel(ctx)
		a, b := h.masters[0], h.masters[1]
		h.masters = []*Controller{a}
		h.follow(ctx)
		h.masters = []*Controller{b}
		h.follow(bctx)
		h.masters = []*Controller{a, b}
		defer synctest.Wait()
		defer cancel()
		for range 3 {
			h.tell(0, "h1", all...)
			time.Sleep(model.L2ReportInterval)
		}
		stop()
		synctest.Wait()
		for i := range 12 {
			if held := h.tell(0, "h1", all...); len(held) != len(all) {
				t.Fatalf("h1 has %v", held)
			}
			held, err := h.ask(1, "h2", all...)
			if len(held) > 0 {
				t.Fatalf("round %d: a netmaster that sees nothing gave %v (%v)", i, held, err)
			}
			time.Sleep(model.L2ReportInterval)
		}
	})
}

// TestAddressMovesOnlyFromHostsThatAreAway: an address moves to another host only if its host is away.
func TestAddressMovesOnlyFromHostsThatAreAway(t *testing.T) {
	best := func(a netip.Addr, hosts ...model.HostName) (b model.HostName) {
		for _, h := range hosts {
			if b == "" || preferred(h, b, a) {
				b = h
			}
		}
		return b
	}
	counts := map[model.HostName]int{}
	var hosts []model.HostName
	for i := range 10 {
		hosts = append(hosts, model.HostName(fmt.Sprint("node-", i)))
	}
	for _, a := range poolOf(200) {
		b := best(a, hosts...)
		counts[b]++
		if c := best(a, hosts[1:]...); b != hosts[0] && c != b {
			t.Errorf("%s moves from %s to %s, though %s went", a, b, c, hosts[0])
		}
	}
	var few []string
	for _, h := range hosts {
		if counts[h] < 8 {
			few = append(few, string(h))
		}
	}
	if len(few) > 0 {
		t.Errorf("%s have few of 200: %v", strings.Join(few, ", "), counts)
	}
}
