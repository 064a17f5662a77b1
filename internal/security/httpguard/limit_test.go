package httpguard

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func ask(t *testing.T, h http.Handler, from string, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// TestClientsHaveABurstAndARate: a client has its burst and then its rate, whatever others do; who is
// refused and comes back when it was told to is let in.
func TestClientsHaveABurstAndARate(t *testing.T) {
	l := NewLimiter(Limits{Rate: 0.5, Burst: 3})
	now := time.Now()
	l.now = func() time.Time { return now }
	h := l.Handler(ok)
	for i, want := range []int{200, 200, 200, 429, 429} {
		if w := ask(t, h, "10.0.0.1:1", nil); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	if w := ask(t, h, "10.0.0.2:1", nil); w.Code != 200 {
		t.Errorf("another client: %d", w.Code)
	}
	w := ask(t, h, "10.0.0.1:2", nil)
	after, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil || after != 2 || !strings.Contains(w.Body.String(), "too many requests from this address") {
		t.Fatalf("Retry-After %q, %s", w.Header().Get("Retry-After"), w.Body)
	}
	now = now.Add(time.Duration(after)*time.Second - time.Millisecond)
	if w := ask(t, h, "10.0.0.1:1", nil); w.Code != 429 {
		t.Errorf("too early: %d", w.Code)
	}
	now = now.Add(time.Millisecond)
	for _, want := range []int{200, 429} {
		if w := ask(t, h, "10.0.0.1:1", nil); w.Code != want {
			t.Errorf("in time: %d, want %d", w.Code, want)
		}
	}
}

// TestLimitsEqualABucketForEachClient: with room for all, clients are answered as if each had a token bucket that is
// kept for ever, although most are forgotten meanwhile. Without room none gets more than
// that, and the table stays within its bound.
func TestLimitsEqualABucketForEachClient(t *testing.T) {
	type bucket struct {
		tokens float64
		at     time.Time
	}
	const perSecond, burst = 2.0, 4
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		room, steps := 1000, 40
		if seed%2 == 1 { // so often that no bucket is full for long
			room, steps = 5, 4
		}
		tab := newTable(Limits{Rate: perSecond, Burst: burst, Clients: room}.defaults())
		now := time.Unix(1_000_000, 0)
		naive := map[netip.Prefix]*bucket{}
		forgotten, shared := false, false
		for range 5000 {
			now = now.Add(time.Duration(rng.IntN(steps)) * 31250 * time.Microsecond) // sixteenths of a token, which floats hold exactly
			if rng.IntN(200) == 0 {
				now = now.Add(time.Minute)
			}
			key := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(30))}), 32)
			if rng.IntN(2) == 0 { // one asks much
				key = netip.MustParsePrefix("10.1.1.1/32")
			}
			b := naive[key]
			if b == nil {
				b = &bucket{burst, now}
				naive[key] = b
			}
			b.tokens = min(burst, b.tokens+now.Sub(b.at).Seconds()*perSecond)
			b.at = now
			want := b.tokens >= 1
			if want {
				b.tokens--
			}
			done, no := tab.begin(key, now)
			if done != nil {
				done()
			}
			if got := no == nil; got != want && (room == 1000 || got) {
				t.Fatalf("seed %d: client %v is let in: %v, want %v", seed, key, got, want)
			} else if room != 1000 && want && !got {
				b.tokens++ // it was not spent
			}
			if len(tab.clients) > room || len(tab.clients) != tab.order.Len() {
				t.Fatalf("%d clients in a table of %d, %d in order", len(tab.clients), room, tab.order.Len())
			}
			shared = shared || tab.others.bucket.TokensAt(now) < burst
			forgotten = forgotten || len(naive) > len(tab.clients)
		}
		if room == 5 && (!shared || !forgotten) {
			t.Errorf("seed %d: nobody was without a place (%v), or forgotten (%v): this tests nothing", seed, shared, forgotten)
		}
	}
}

// Of a full table those are forgotten who asked longest ago, not who came first.
func TestFullTableForgetsTheLongestIdle(t *testing.T) {
	tab := newTable(Limits{Rate: 1, Burst: 2, Clients: 20}.defaults())
	now := time.Unix(1_000_000, 0)
	ask := func(n int) netip.Prefix {
		key := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32)
		if done, no := tab.begin(key, now); no == nil {
			done()
		}
		return key
	}
	for n := range 20 {
		ask(n)
	}
	now = now.Add(time.Minute)
	for n := range 16 {
		ask(n)
	}
	if key := ask(20); tab.clients[key] == nil || len(tab.clients) != 20 {
		t.Errorf("a new client has no place among %d", len(tab.clients))
	}
}

// A client that is being answered is not forgotten, however long that takes: its limit of
// running requests would be gone. Others behind it in the list are.
func TestForgetSkipsClientsThatAreAnswered(t *testing.T) {
	const room = 17 // one more than are looked at
	tab := newTable(Limits{Rate: 1, Burst: 2, Clients: room, Running: 1}.defaults())
	now := time.Unix(1_000_000, 0)
	key := func(n int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32) }
	var ends []func()
	for n := range room {
		done, no := tab.begin(key(n), now)
		if no != nil {
			t.Fatal(no)
		}
		ends = append(ends, done)
	}
	now = now.Add(time.Minute)
	if _, no := tab.begin(key(room), now); no != nil || len(tab.clients) != room || tab.clients[key(room)] != nil {
		t.Errorf("a client more than there is room for: %v, %d clients", no, len(tab.clients))
	}
	ends[3]()
	if _, no := tab.begin(key(room+1), now); no != nil || tab.clients[key(room+1)] == nil || tab.clients[key(3)] != nil {
		t.Errorf("a client in place of one that is idle: %v", no)
	}
	if _, no := tab.begin(key(0), now); no == nil || no.Status != http.StatusTooManyRequests {
		t.Errorf("a second request of a client that is being answered: %v", no)
	}
}

func TestUnsetLimitsGetDefaults(t *testing.T) {
	c := Limits{Burst: 7}.defaults()
	if c.Body != 16<<20 || c.Rate != 200 || c.Burst != 7 || c.Running != 64 || c.RunningAll != 1024 || c.Clients != 10_000 || c.Streams != nil {
		t.Errorf("%+v", c)
	}
}

// TestRunningRequestsAreLimited: so many requests are answered at a time, of one client and of all,
// and one that ends, or breaks down, makes room.
func TestRunningRequestsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Running: 2, RunningAll: 3, Clients: 1, Burst: 100})
		hold := make(chan bool)
		h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if <-hold {
				panic(http.ErrAbortHandler)
			}
		}))
		begin := func(from string) chan int {
			code := make(chan int, 1)
			go func() {
				defer func() {
					if recover() != nil {
						code <- 0
					}
				}()
				code <- ask(t, h, from, nil).Code
			}()
			synctest.Wait()
			return code
		}
		a, b := begin("10.0.0.1:1"), begin("10.0.0.1:2")
		if got := <-begin("10.0.0.1:3"); got != 429 {
			t.Errorf("a third request of a client: %d", got)
		}
		c := begin("10.0.0.2:1")
		if got := <-begin("10.0.0.3:1"); got != 503 {
			t.Errorf("a fourth request of all: %d", got)
		}
		hold <- true
		hold <- false
		hold <- false
		if got := <-a + <-b + <-c; got != 400 {
			t.Errorf("the codes of those let in add up to %d", got)
		}
		d := begin("10.0.0.1:1")
		hold <- false
		if got := <-d; got != 200 {
			t.Errorf("when all have ended: %d", got)
		}
	})
}

// TestLargeBodiesAreRefused: a body beyond the limit is refused by its length, and cut off where that
// is not told; one of just the limit is read whole.
func TestLargeBodiesAreRefused(t *testing.T) {
	var got []byte
	var err error
	h := NewLimiter(Limits{Body: 10}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, err = io.ReadAll(r.Body) }))
	if w := ask(t, h, "10.0.0.1:1", strings.NewReader("12345678901")); w.Code != 413 || !strings.Contains(w.Body.String(), "at most 10 bytes") || got != nil {
		t.Errorf("%d %s, read %q", w.Code, w.Body, got)
	}
	ask(t, h, "10.0.0.1:1", io.MultiReader(strings.NewReader("12345678901")))
	if _, large := errors.AsType[*http.MaxBytesError](err); !large || len(got) != 10 {
		t.Errorf("of unknown length: %v, read %q", err, got)
	}
	stream := NewLimiter(Limits{Body: 10, Streams: func(r *http.Request) bool { return r.URL.Path == "/" }}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, err = io.ReadAll(r.Body) }))
	if w := ask(t, stream, "10.0.0.1:1", strings.NewReader("12345678901")); w.Code != 200 || err != nil || len(got) != 11 {
		t.Errorf("a stream: %d %v, read %q", w.Code, err, got)
	}
	got = nil
	other := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/other", strings.NewReader("12345678901"))
	w := httptest.NewRecorder()
	if stream.ServeHTTP(w, other); w.Code != 413 || got != nil {
		t.Errorf("another path than the stream's: %d, read %q", w.Code, got)
	}
	if ask(t, h, "10.0.0.1:1", bytes.NewReader([]byte("1234567890"))); err != nil || string(got) != "1234567890" {
		t.Errorf("of the limit: %v, read %q", err, got)
	}
}
