package bgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// The library does not always empty the queue of a neighbor that ends, whose
// goroutine then stays: one a neighbor that is removed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/eapache/channels.(*InfiniteChannel).infiniteBuffer"))
}

const hostAS, routerAS = 65002, 4200000500

// host is a speaker under test, at 127.0.0.1.
type host struct {
	*Speaker
	t   testing.TB
	cfg Config
	at  netip.AddrPort
}

// start makes a speaker with neighbors at 127.0.0.2 and so on, in routerAS, which dial it.
func start(t testing.TB, neighbors int, change func(*Config), opts Options) *host {
	t.Helper()
	testenv.SkipShort(t)
	port := freePort(t)
	cfg := Config{AS: hostAS, RouterID: netip.MustParseAddr("127.0.0.1"), Listen: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Port: port}
	silent := freePort(t)
	for i := range neighbors {
		cfg.Neighbors = append(cfg.Neighbors, Neighbor{
			Address: netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)}), AS: routerAS, Port: silent, IPv4: true, IPv6: true, HoldTime: 60 * time.Second,
		})
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Start(t.Context(), cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Speaker: s, t: t, cfg: cfg, at: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}
	t.Cleanup(func() { h.close(false) })
	return h
}

func (h *host) close(restart bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := h.Close(ctx, restart); err != nil {
		h.t.Error(err)
	}
}

func (h *host) announce(wanted ...Announcement) {
	h.t.Helper()
	if err := h.Announce(h.t.Context(), wanted); err != nil {
		h.t.Fatal(err)
	}
}

func a(prefix, hop string) Announcement {
	return Announcement{Prefix: netip.MustParsePrefix(prefix), NextHop: netip.MustParseAddr(hop), Tenant: "blue"}
}

// learns waits for exactly these routes, each with its next hops.
func (h *host) learns(want map[string]string) *Routes {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), deadline)
	defer cancel()
	pic := h.Routes()
	for {
		got := map[string]string{}
		for p, hops := range pic.Routes {
			var s []string
			for _, hop := range hops {
				text := hop.Address.String()
				if hop.Stale {
					text += " stale"
				}
				s = append(s, text)
			}
			got[p.String()] = strings.Join(s, " ")
		}
		d := cmp.Diff(want, got)
		if d == "" {
			return pic
		}
		var err error
		if pic, err = h.Changed(ctx, pic.Generation); err != nil {
			h.t.Fatalf("wait for routes: %v, last: %s", err, d)
		}
	}
}

// peer waits for what is true of a neighbor's state.
func (h *host) peer(neighbor, what string, ok func(PeerState) bool) PeerState {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), deadline)
	defer cancel()
	for {
		st, err := h.State(ctx)
		if err != nil {
			h.t.Fatal(err)
		}
		i := slices.IndexFunc(st.Peers, func(p PeerState) bool { return p.Address == netip.MustParseAddr(neighbor) })
		if i >= 0 && ok(st.Peers[i]) {
			return st.Peers[i]
		}
		if waiting.Pause(ctx, 20*time.Millisecond) != nil {
			h.t.Fatalf("neighbor %s: wait for %s: %+v", neighbor, what, st.Peers)
		}
	}
}

func established(p PeerState) bool { return p.State == Established }

func TestAnnounceOnlyTheDifference(t *testing.T) {
	h := start(t, 2, nil, Options{})
	h.announce(a("10.1.1.1/32", "10.9.0.1"), a("10.1.1.2/32", "10.9.0.1"), a("fd00:1::1/128", "fd00:9::1"))
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", routerAS, h)
	want := map[string]string{"10.1.1.1/32": "10.9.0.1", "10.1.1.2/32": "10.9.0.1", "fd00:1::1/128": "fd00:9::1"}
	one.has(want)
	two.has(want)

	one.mu.Lock()
	before := one.updates
	one.mu.Unlock()
	h.announce(a("10.1.1.2/32", "10.9.0.1"), a("10.1.1.3/32", "10.9.0.1"), a("fd00:1::1/128", "fd00:9::1"))
	want = map[string]string{"10.1.1.2/32": "10.9.0.1", "10.1.1.3/32": "10.9.0.1", "fd00:1::1/128": "fd00:9::1"}
	one.has(want)
	two.has(want)
	h.announce(a("10.1.1.2/32", "10.9.0.2")) // another next hop
	one.has(map[string]string{"10.1.1.2/32": "10.9.0.2"})
	one.mu.Lock()
	if n := one.updates - before; n > 5 { // all that came before the last
		t.Errorf("%d updates for two changes, then three", n)
	}
	one.mu.Unlock()
	if st := h.peer("127.0.0.3", "one announced", func(p PeerState) bool { return p.Announced == 1 }); !established(st) || st.Problem != "" {
		t.Errorf("state %+v", st)
	}
}

func TestBadAnnouncementsAreRefused(t *testing.T) {
	h := start(t, 1, nil, Options{})
	r := connect(t, "127.0.0.2", routerAS, h)
	red := a("10.1.1.1/32", "10.9.0.3")
	red.Tenant = "red"
	h.announce(red)
	r.has(map[string]string{"10.1.1.1/32": "10.9.0.3"})
	// Blue comes first by name, red was first.
	h.announce(a("10.1.1.1/32", "10.9.0.1"), red, a("10.1.1.2/32", "fd00::1"), a("0.0.0.0/0", "10.9.0.1"), a("10.1.1.3/32", "10.9.0.1"))
	r.has(map[string]string{"10.1.1.1/32": "10.9.0.3", "10.1.1.3/32": "10.9.0.1"})
	st, err := h.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"10.1.1.1/32 of tenant blue": "tenant red has the same prefix",
		"10.1.1.2/32 of tenant blue": "next hop fd00::1: must be an address of the prefix's family",
		"0.0.0.0/0 of tenant blue":   "a host is not the default route",
	}
	if d := cmp.Diff(want, st.Refused); d != "" {
		t.Error(d)
	}
	h.announce(a("10.1.1.1/32", "10.9.0.1"))
	r.has(map[string]string{"10.1.1.1/32": "10.9.0.1"})
}

func TestRoutesAreLearned(t *testing.T) {
	h := start(t, 2, func(c *Config) {
		c.Protected = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("172.16.5.1/32"), netip.MustParsePrefix("fd00:1::/64")}
		c.Neighbors[1].AS = 65010 // nor would it be told of what is its own AS's
	}, Options{})
	h.announce(a("10.7.0.1/32", "10.9.0.1"))
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", 65010, h)
	one.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16", "10.3.0.0/16")
	two.tell(way{hop: "10.9.0.3"}, "10.2.0.0/16")
	two.tell(way{hop: "10.9.0.3", asPath: []uint32{65010, 65011}}, "10.3.0.0/16") // longer
	one.tell(way{hop: "fd00:9::2"}, "fd00:2::/64", "fd00:1::5/128")
	two.tell(way{hop: "fd00:9::3"}, "fd00:2::/64")
	// What must not be learned.
	one.tell(way{hop: "10.9.0.2"}, "0.0.0.0/0", "10.1.2.0/24", "10.0.0.0/8", "172.16.0.0/12", "10.7.0.1/32", "127.3.0.0/16")
	one.tell(way{hop: "127.0.0.1"}, "10.4.0.0/16") // the host itself
	one.tell(way{hop: "10.9.0.2", asPath: []uint32{routerAS, hostAS}}, "10.5.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2 10.9.0.3", "10.3.0.0/16": "10.9.0.2", "fd00:2::/64": "fd00:9::2 fd00:9::3"})
	st := h.peer("127.0.0.2", "all counted", func(p PeerState) bool { return p.Received == 12 && p.Accepted == 3 && p.Rejected == 9 })
	if d := cmp.Diff(Reasons{ReasonDefault: 1, ReasonProtected: 4, ReasonOwn: 1, ReasonNextHop: 1, ReasonLoop: 1, ReasonSpecial: 1}, st.Why); d != "" {
		t.Error(d)
	}
	// Routes of one neighbor are not announced to another.
	two.has(map[string]string{"10.7.0.1/32": "10.9.0.1"})

	one.takeBack("10.2.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.3", "10.3.0.0/16": "10.9.0.2", "fd00:2::/64": "fd00:9::2 fd00:9::3"})

	// What is protected changes while sessions live, and the default is asked for.
	h.cfg.Protected = []netip.Prefix{netip.MustParsePrefix("10.2.9.9/32")}
	h.cfg.Default = true
	if err := h.Configure(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
	h.learns(map[string]string{
		"0.0.0.0/0": "10.9.0.2", "10.1.2.0/24": "10.9.0.2", "10.3.0.0/16": "10.9.0.2", "172.16.0.0/12": "10.9.0.2",
		"fd00:1::5/128": "fd00:9::2", "fd00:2::/64": "fd00:9::2 fd00:9::3",
	})

	// A neighbor that says good-bye is forgotten.
	two.send(goodbye())
	h.learns(map[string]string{
		"0.0.0.0/0": "10.9.0.2", "10.1.2.0/24": "10.9.0.2", "10.3.0.0/16": "10.9.0.2", "172.16.0.0/12": "10.9.0.2",
		"fd00:1::5/128": "fd00:9::2", "fd00:2::/64": "fd00:9::2",
	})
	h.peer("127.0.0.3", "why it is down", func(p PeerState) bool { return strings.HasPrefix(p.WhyDown, "ended by the neighbor") && p.Flaps == 1 })
}

func TestNeighborsChangeAlone(t *testing.T) {
	h := start(t, 2, nil, Options{})
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", routerAS, h)
	one.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
	first := h.peer("127.0.0.2", "a session", established)
	h.peer("127.0.0.3", "a session", established) // or it would not be worth a good-bye

	h.cfg.Neighbors = slices.Clone(h.cfg.Neighbors)
	h.cfg.Neighbors[1].AS = 65077
	h.cfg.Neighbors = append(h.cfg.Neighbors, Neighbor{Address: netip.MustParseAddr("127.0.0.4"), AS: 65004, Port: h.cfg.Neighbors[0].Port})
	if err := h.Configure(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
	two.until("a good-bye", func() bool { return two.notified != nil })
	connect(t, "127.0.0.3", 65077, h)
	connect(t, "127.0.0.4", 65004, h)

	h.cfg.Neighbors = h.cfg.Neighbors[:1]
	h.cfg.Neighbors[0].MaxPrefixes = 77
	h.cfg.Neighbors[0].HoldTime = 30 * time.Second
	if err := h.Configure(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
	st, err := h.State(t.Context())
	if err != nil || len(st.Peers) != 1 {
		t.Fatalf("state %+v, %v", st, err)
	}
	if now := st.Peers[0]; now.State != Established || now.Flaps != 0 || !now.Since.Equal(first.Since) {
		t.Errorf("the session that nothing asked to change is %+v, was %+v", now, first)
	}
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})

	// Another number of the host's own is another speaker.
	h.announce(a("10.7.0.1/32", "10.9.0.1"))
	h.cfg.AS = 65099
	if err := h.Configure(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
	one.until("a good-bye", func() bool { return one.notified != nil })
	h.learns(map[string]string{})
	again := connect(t, "127.0.0.2", routerAS, h)
	again.has(map[string]string{"10.7.0.1/32": "10.9.0.1"})
	if again.open.MyAS != 65099 {
		t.Errorf("it says that it is %d", again.open.MyAS)
	}
	h.cfg.RestartTime = 555 * time.Second
	if err := h.Configure(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
	again.until("a good-bye", func() bool { return again.notified != nil })
	last := connect(t, "127.0.0.2", routerAS, h)
	if g := graceful(t, last.open); g.Time != 555 {
		t.Errorf("restart capability %+v", g)
	}
}

func TestPrefixLimitClosesTheSession(t *testing.T) {
	marksStale(t)
	h := start(t, 2, func(c *Config) { c.Neighbors[0].MaxPrefixes = 10 }, Options{})
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", routerAS, h)
	two.tell(way{hop: "10.9.0.3"}, "10.2.0.0/16")
	var many []string
	for i := range 11 {
		many = append(many, fmt.Sprintf("10.20.%d.0/24", i))
	}
	one.tell(way{hop: "10.9.0.2"}, many[:10]...)
	h.peer("127.0.0.2", "ten", func(p PeerState) bool { return p.Accepted == 10 && established(p) })
	one.tell(way{hop: "10.9.0.2"}, many[10:]...)
	one.until("the limit's notification", func() bool {
		return one.notified != nil && one.notified.ErrorCode == 6 && one.notified.ErrorSubcode == 1
	})
	st := h.peer("127.0.0.2", "the limit", func(p PeerState) bool { return p.State == Limit && p.Problem != "" })
	if want := "it announced more than 10 prefixes of one family"; !strings.Contains(st.Problem, want) || !strings.Contains(st.WhyDown, want) {
		t.Errorf("state %+v", st)
	}
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.3"})
	if st := h.peer("127.0.0.3", "the other", established); st.Flaps != 0 {
		t.Errorf("the other one: %+v", st)
	}

	h.cfg.Neighbors = slices.Clone(h.cfg.Neighbors)
	h.cfg.Neighbors[0].MaxPrefixes = 11
	if err := h.Configure(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
	one.hangUp()
	one.dial(h.at)
	one.tell(way{hop: "10.9.0.2"}, many...)
	h.peer("127.0.0.2", "eleven", func(p PeerState) bool { return p.Accepted == 11 && established(p) && p.Problem == "" })
}

// A neighbor may tell much, and one that tells a million prefixes is stopped early.
func TestFloodOfPrefixesIsStopped(t *testing.T) {
	marksStale(t)
	h := start(t, 2, nil, Options{})
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", routerAS, h)
	two.tell(way{hop: "10.9.0.3"}, "10.2.0.0/16")
	batch := func(n int) (out []string) {
		for i := range 500 {
			at := n*500 + i
			out = append(out, fmt.Sprintf("%d.%d.%d.0/24", 20+at>>16, at>>8&255, at&255))
		}
		return out
	}
	begin := time.Now()
	for n := range MaxPrefixes / 500 {
		one.tell(way{hop: "10.9.0.2"}, batch(n)...)
	}
	h.peer("127.0.0.2", "all that it may tell", func(p PeerState) bool { return p.Accepted == MaxPrefixes && established(p) })
	if n := len(h.Routes().Routes); n != MaxPrefixes+1 {
		t.Errorf("%d routes", n)
	}
	t.Logf("%d routes after %s", MaxPrefixes, time.Since(begin))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sent := MaxPrefixes
	for n := MaxPrefixes / 500; n < 2000; n++ {
		if send(one.connection(), one.announcement(way{hop: "10.9.0.2"}, batch(n))) != nil {
			break
		}
		sent += 500
	}
	h.peer("127.0.0.2", "the limit", func(p PeerState) bool { return p.State == Limit })
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.3"})
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("closed after %d prefixes at most; the heap grew by %d KiB", sent, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
	if p := h.peer("127.0.0.3", "the other", established); p.Flaps != 0 {
		t.Errorf("the other: %+v", p)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	good := func() Config {
		return Config{AS: 1, RouterID: netip.MustParseAddr("10.0.0.1"), Neighbors: []Neighbor{{Address: netip.MustParseAddr("10.0.0.2"), AS: 2}}}
	}
	if _, err := good().complete(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"as":                         func(c *Config) { c.AS = 0 },
		"router id":                  func(c *Config) { c.RouterID = netip.MustParseAddr("fd00::1") },
		"restart time":               func(c *Config) { c.RestartTime = 4096 * time.Second },
		"is there twice":             func(c *Config) { c.Neighbors = append(c.Neighbors, c.Neighbors[0]) },
		"neighbor 10.0.0.2: as":      func(c *Config) { c.Neighbors[0].AS = 0 },
		"must be a router's address": func(c *Config) { c.Neighbors[0].Address = netip.Addr{} },
		"neighbor 224.0.0.5":         func(c *Config) { c.Neighbors[0].Address = netip.MustParseAddr("224.0.0.5") },
		"hold time":                  func(c *Config) { c.Neighbors[0].HoldTime = 2 * time.Second },
		"password":                   func(c *Config) { c.Neighbors[0].Password = strings.Repeat("x", 81) },
		"local address":              func(c *Config) { c.Neighbors[0].Local = netip.MustParseAddr("fd00::1") },
		"BFD interval":               func(c *Config) { c.Neighbors[0].BFD = &BFD{Interval: time.Microsecond} },
	} {
		c := good()
		change(&c)
		_, err := Start(t.Context(), c, Options{})
		if !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestUnusableListenAddressIsReported(t *testing.T) {
	h := start(t, 0, nil, Options{})
	if _, err := Start(t.Context(), h.cfg, Options{}); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("on a port that is taken: %v", err)
	}
	h.close(false)
	h.close(false)
	if err := h.Announce(t.Context(), nil); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("after its end: %v", err)
	}
}
