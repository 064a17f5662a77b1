package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestCachedAnswersAreAskedForOnce: while an answer may be cached, the resolver is asked once for all clients,
// also when the answer is that the name does not exist.
func TestCachedAnswersAreAskedForOnce(t *testing.T) {
	up := newResolver(t, func(q *dns.Msg, _ bool) *dns.Msg {
		switch name := q.Question[0].Name; {
		case strings.HasPrefix(name, "none"):
			return outsideNone(q, 100, 7)
		case strings.HasPrefix(name, "bare"):
			return new(dns.Msg).SetRcode(q, dns.RcodeNameError)
		case strings.HasPrefix(name, "zero"):
			return outsideA(q, 0)
		default:
			return outsideA(q, 60)
		}
	})
	b := serve(t, Config{Upstreams: []netip.AddrPort{up.addr}})
	ask := func(from netip.Addr, name string, want string, asked int) *dns.Msg {
		t.Helper()
		m := b.ask("udp", from, name, dns.TypeA)
		if got := text(m); got != want || m.Authoritative {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if n := up.asked(); n != asked {
			t.Errorf("%s: the resolver was asked %d times, want %d", name, n, asked)
		}
		return m
	}
	ask(blue1, "a.example", "NOERROR 192.0.2.7", 1)
	b.clock.pass(20 * time.Second)
	if m := ask(red1, "A.Example", "NOERROR 192.0.2.7", 1); m.Answer[0].Header().Ttl != 40 || m.Question[0].Name != "A.Example." {
		t.Errorf("after 20 s: %v", m)
	}
	b.clock.pass(40 * time.Second)
	ask(blue1, "a.example", "NOERROR 192.0.2.7", 2)

	ask(blue1, "none.example", "NXDOMAIN", 3)
	b.clock.pass(6 * time.Second)
	ask(blue1, "none.example", "NXDOMAIN", 3)
	b.clock.pass(time.Second)
	ask(blue1, "none.example", "NXDOMAIN", 4)
	ask(blue1, "bare.example", "NXDOMAIN", 5)
	ask(blue1, "bare.example", "NXDOMAIN", 6) // without a TTL
	ask(blue1, "zero.example", "NOERROR 192.0.2.7", 7)
	ask(blue1, "zero.example", "NOERROR 192.0.2.7", 8)
	if s := b.Stats(); s.Forwarded != 8 || s.CacheHits != 2 || s.CacheEntries == 0 {
		t.Errorf("counters: %+v", s)
	}
}

// TestChosenServerAnswersFirst: an asker that chose a server of its own gets that server's
// answer, and the host's resolvers' only where that server has none; the cluster's
// own names stay, and what one server says is not told to askers of another.
func TestChosenServerAnswersFirst(t *testing.T) {
	host := newResolver(t, func(q *dns.Msg, _ bool) *dns.Msg { return outsideA(q, 60) })
	var broken atomic.Bool
	mine := newResolverAt(t, "127.9.9.8:0", func(q *dns.Msg, _ bool) *dns.Msg {
		if broken.Load() {
			return new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
		}
		return outsideNone(q, 60, 60)
	})
	replaced := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(replaced, []byte("nameserver 127.9.9.9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var chosen atomic.Pointer[netip.AddrPort]
	b := serve(t, Config{Upstreams: []netip.AddrPort{host.addr}, ResolvConf: replaced, Asked: func(network string, from, at netip.AddrPort) (netip.AddrPort, error) {
		if !strings.HasPrefix(network, "udp") && !strings.HasPrefix(network, "tcp") || from.Addr() != blue1 || !at.IsValid() {
			t.Errorf("Asked(%s, %v, %v)", network, from, at)
		}
		if to := chosen.Load(); to != nil {
			return *to, nil
		}
		return netip.AddrPort{}, errors.New("not tracked")
	}})
	for _, x := range []struct {
		name         string
		chosen       *netip.AddrPort
		broken       bool
		ask, want    string
		toHost, mine int // more questions
	}{
		{"not known", nil, false, "a.example", "NOERROR 192.0.2.7", 1, 0},
		{"its own", &mine.addr, false, "a.example", "NXDOMAIN", 0, 1},
		{"its own, remembered", &mine.addr, false, "a.example", "NXDOMAIN", 0, 0},
		{"the cluster's names", &mine.addr, false, "two", "NOERROR 10.1.0.4", 0, 0},
		{"its own has no answer", &mine.addr, true, "b.example", "NOERROR 192.0.2.7", 1, 1},
		{"the router", new(netip.AddrPortFrom(desired.RouterAddr, Port)), false, "c.example", "NOERROR 192.0.2.7", 1, 0},
		{"this server", new(netip.AddrPortFrom(b.addr.Addr(), Port)), false, "d.example", "NOERROR 192.0.2.7", 1, 0},
		{"one that --dns-upstream replaces", new(netip.MustParseAddrPort("127.9.9.9:53")), false, "e.example", "NOERROR 192.0.2.7", 1, 0},
	} {
		chosen.Store(x.chosen)
		broken.Store(x.broken)
		h, m := host.asked(), mine.asked()
		for _, network := range []string{"udp", "tcp"} {
			if got := text(b.ask(network, blue1, x.ask, dns.TypeA)); got != x.want {
				t.Errorf("%s, %s: %s, want %s", x.name, network, got, x.want)
			}
		}
		if host.asked()-h != x.toHost || mine.asked()-m != x.mine {
			t.Errorf("%s: the host's resolver was asked %d times, the chosen one %d, want %d and %d", x.name, host.asked()-h, mine.asked()-m, x.toHost, x.mine)
		}
	}
}

// TestCacheStaysBelowItsLimit: the cache never takes more than its limit, the answers least
// recently used go, and a clear forgets all.
func TestCacheStaysBelowItsLimit(t *testing.T) {
	const limit = 20 * 400
	c := newCache(limit, time.Now)
	put := func(i int) question {
		q := question{name: fmt.Sprintf("n%d.example.", i), qtype: dns.TypeA}
		c.put(q, outsideA(new(dns.Msg).SetQuestion(q.name, q.qtype), 60))
		return q
	}
	first := put(0)
	for i := range 1000 {
		put(i + 1)
		if c.get(first) == nil {
			t.Fatalf("after %d others, what was used all the time has gone", i+1)
		}
		if n, bytes := c.size(); bytes > limit || n < 10 && i > 20 {
			t.Fatalf("%d entries take %d bytes", n, bytes)
		}
	}
	if n, _ := c.size(); c.lru.Len() != n {
		t.Errorf("%d in the list, %d in the map", c.lru.Len(), n)
	}
	c.clear()
	if n, bytes := c.size(); n != 0 || bytes != 0 || c.get(first) != nil {
		t.Errorf("after a clear: %d entries, %d bytes", n, bytes)
	}
}

// TestFailingResolversAreAnsweredFor: what the resolvers can do wrong, and what the asker hears.
func TestFailingResolversAreAnsweredFor(t *testing.T) {
	long := func(q *dns.Msg, tcp bool) *dns.Msg {
		m := outsideA(q, 60)
		for range 300 {
			m.Answer = append(m.Answer, outsideA(q, 60).Answer[0])
		}
		if !tcp {
			m.Truncate(dns.MinMsgSize)
		}
		return m
	}
	code := func(rcode int) answers {
		return func(q *dns.Msg, _ bool) *dns.Msg { return new(dns.Msg).SetRcode(q, rcode) }
	}
	good := func(q *dns.Msg, _ bool) *dns.Msg { return outsideA(q, 60) }
	for name, tc := range map[string]struct {
		first answers
		want  string
	}{
		"good":           {good, "NOERROR 192.0.2.7"},
		"silent":         {func(*dns.Msg, bool) *dns.Msg { return nil }, "NOERROR 192.0.2.7"},
		"SERVFAIL":       {code(dns.RcodeServerFailure), "NOERROR 192.0.2.7"},
		"REFUSED":        {code(dns.RcodeRefused), "NOERROR 192.0.2.7"},
		"NXDOMAIN":       {code(dns.RcodeNameError), "NXDOMAIN"},
		"long":           {long, "NOERROR" + strings.Repeat(" 192.0.2.7", 301)},
		"other question": {func(q *dns.Msg, _ bool) *dns.Msg { q.Question[0].Name = "evil.example."; return outsideA(q, 60) }, "NOERROR 192.0.2.7"},
		"other id": {func(q *dns.Msg, _ bool) *dns.Msg {
			m := code(dns.RcodeNameError)(q, false)
			m.Id++
			return m
		}, "NOERROR 192.0.2.7"},
		"without EDNS": {func(q *dns.Msg, _ bool) *dns.Msg {
			if q.IsEdns0() != nil {
				return code(dns.RcodeFormatError)(q, false)
			}
			return code(dns.RcodeNameError)(q, false)
		}, "NXDOMAIN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serve(t, Config{Upstreams: []netip.AddrPort{newResolver(t, tc.first).addr, newResolver(t, good).addr}})
			if got := text(b.ask("tcp", blue1, "a.example", dns.TypeA)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestFailingResolversAreReportedInTime: when no resolver answers, the asker hears so before it gives up.
func TestFailingResolversAreReportedInTime(t *testing.T) {
	silent := newResolver(t, func(*dns.Msg, bool) *dns.Msg { return nil })
	for name, list := range map[string][]netip.AddrPort{"none": {}, "silent": {silent.addr}} {
		b := serve(t, Config{Upstreams: list})
		if got := text(b.ask("udp", blue1, "a.example", dns.TypeA)); got != "SERVFAIL" {
			t.Errorf("%s: %s", name, got)
		}
		if s := b.Stats(); s.Failures != 1 || (s.Problem != "") != (len(list) == 0) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestEqualQuestionsShareOneExchange: many askers of one question cost one exchange, and one container cannot
// take all places for questions under way.
func TestEqualQuestionsShareOneExchange(t *testing.T) {
	release := make(chan struct{})
	up := newResolver(t, func(q *dns.Msg, _ bool) *dns.Msg {
		<-release
		return outsideA(q, 60)
	})
	b := serve(t, Config{Upstreams: []netip.AddrPort{up.addr}})
	var all sync.WaitGroup
	for range maxPerClient {
		all.Go(func() {
			if m, err := b.query("udp", blue1, new(dns.Msg).SetQuestion("a.example.", dns.TypeA)); err != nil || text(m) != "NOERROR 192.0.2.7" {
				t.Errorf("%v %v", m, err)
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); ; {
		b.underWay.mu.Lock()
		n := b.underWay.by[blue1]
		b.underWay.mu.Unlock()
		if n == maxPerClient {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d questions are under way", n)
		}
	}
	if got := text(b.ask("udp", blue1, "b.example", dns.TypeA)); got != "SERVFAIL" {
		t.Errorf("one question too many: %s", got)
	}
	if got := text(b.ask("udp", blue1, "w1", dns.TypeA)); got != "NOERROR 10.1.0.1" {
		t.Errorf("a local name meanwhile: %s", got)
	}
	close(release)
	all.Wait()
	if got := text(b.ask("udp", blue1, "b.example", dns.TypeA)); got != "NOERROR 192.0.2.7" {
		t.Errorf("afterwards: %s", got)
	}
	if n := up.asked(); n != 2 {
		t.Errorf("the resolver was asked %d times", n)
	}
	if s := b.Stats(); s.Limited != 1 {
		t.Errorf("counters: %+v", s)
	}
}

// TestResolvConfIsFollowed: the host's list is followed; this server itself is left out.
func TestResolvConfIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := serve(t, Config{ResolvConf: file})
	list := func() string {
		b.clock.pass(rereadEvery)
		s := b.Stats()
		return fmt.Sprint(s.Resolvers, " ", s.Problem)
	}
	for _, tc := range []struct{ text, want string }{
		{"# none\nnameserver 192.0.2.1\nnameserver  192.0.2.2 # b\nsearch x\nnameserver nonsense\nnameserver 2001:db8::1\nnameserver 192.0.2.4\n", "[192.0.2.1:53 192.0.2.2:53 [2001:db8::1]:53] "},
		{"nameserver 127.0.0.53\n", "[127.0.0.53:53] "},
		{"nameserver 127.0.0.1\nnameserver 192.0.2.9\n", "[192.0.2.9:53] resolver 127.0.0.1 is this name server itself: it is left out"},
		{"", "[] no resolver is listed"},
		{strings.Repeat("#", maxResolvConf+1), "[] " + file + " is not a file of at most 65536 bytes"},
	} {
		write(tc.text)
		if got := list(); got != tc.want {
			t.Errorf("%.40q: %s, want %s", tc.text, got, tc.want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := list(); !strings.Contains(got, "no such file") {
		t.Errorf("without a file: %s", got)
	}
	b.cache.put(question{name: "a."}, outsideA(new(dns.Msg).SetQuestion("a.", dns.TypeANY), 60))
	write("nameserver 192.0.2.1")
	if list(); b.Stats().CacheEntries != 0 {
		t.Error("what other resolvers said is still remembered")
	}
}

// TestForwardingLoopsEnd: a resolver that asks this server again is found out, and each
// question ends.
func TestForwardingLoopsEnd(t *testing.T) {
	var b *bed
	ready := make(chan struct{})
	up := newResolver(t, func(q *dns.Msg, _ bool) *dns.Msg { // a container's resolver
		<-ready
		m, err := b.query("udp", blue2, q.Copy())
		if err != nil {
			return nil
		}
		return m
	})
	b = serve(t, Config{Upstreams: []netip.AddrPort{up.addr}})
	close(ready)
	if got := text(b.ask("udp", blue1, "a.example", dns.TypeA)); got != "SERVFAIL" {
		t.Errorf("%s", got)
	}
	for deadline := time.Now().Add(time.Minute); b.Stats().Loops == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("no loop was found: %+v", b.Stats())
		}
	}
}

// TestUpstreamAddressesAreParsed reads addresses of resolvers.
func TestUpstreamAddressesAreParsed(t *testing.T) {
	for in, want := range map[string]string{
		"": "[]", "192.0.2.1": "[192.0.2.1:53]", "192.0.2.1:5353, 2001:db8::1": "[192.0.2.1:5353 [2001:db8::1]:53]", "[2001:db8::1]:5": "[[2001:db8::1]:5]",
		"host": "", "192.0.2.1:0": "", "192.0.2.1:x": "", "192.0.2.1,": "",
	} {
		got, err := ParseUpstreams(in)
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v %v, want %q", in, got, err, want)
		}
	}
}
