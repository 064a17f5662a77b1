package relay

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// begin opens a stream as who, by hand.
func (r *replica) begin(who string) *link {
	r.t.Helper()
	r.mu.Lock()
	r.who = who
	r.mu.Unlock()
	conn, err := r.open(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if c, ok := conn.(net.Conn); ok { // what is waited for in vain is an error
		_ = c.SetReadDeadline(time.Now().Add(patience))
	}
	l := newLink("", conn)
	if m, err := l.read(); err != nil || !m.Fresh {
		r.t.Fatal(m, err)
	}
	return l
}

func (l *link) say(t *testing.T, ask string) {
	t.Helper()
	if _, err := l.conn.Write([]byte(ask + "\n")); err != nil {
		t.Fatal(err)
	}
}

// list reads until a list is whole.
func (l *link) list() (m api.MirrorMessage, err error) {
	for err == nil && (!m.List || m.Revision == 0) {
		m, err = l.read()
	}
	return m, err
}

// One client has a few streams: beyond that the oldest end with a message, so that a host
// with broken streams that are still open is served. Other clients have their own limit.
func TestClientsHaveFewStreams(t *testing.T) {
	r := newReplica(t, memory.New())
	var of []*link
	for range maxStreams + 2 {
		of = append(of, r.begin("h1"))
	}
	other, nobody := r.begin("h2"), r.begin("")
	for i, l := range of[:2] {
		if _, err := l.list(); err == nil || !containsAll(err.Error(), "it ended the stream", "newer streams") {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	for i, l := range append(of[2:], other, nobody) {
		l.say(t, `{"id":1,"prefixes":["`+state+`x/"]}`)
		if _, err := l.list(); err != nil {
			t.Errorf("stream %d of those that stay: %v", i, err)
		}
	}
	r.cut(true)
	eventually(t, "nothing is kept of them", func() bool {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		return len(r.hub.streams)+len(r.hub.named) == 0
	})
}

// What a client asks for takes a bounded part of a netmaster's memory, and what it asks
// for no more takes none.
func TestClientsTakeBoundedMemory(t *testing.T) {
	r := newReplica(t, memory.New())
	long := strings.Repeat("x", maxRequest-1000)
	l := r.begin("h1")
	for id := 1; id <= 2*maxRequestBytes/len(long); id++ {
		l.say(t, fmt.Sprintf(`{"id":%d,"prefixes":["%sx/%d%s"]}`, id, state, id, long))
		if _, err := l.list(); err != nil {
			t.Fatalf("mirror %d: %v", id, err)
		}
		l.say(t, fmt.Sprintf(`{"id":%d,"end":true}`, id))
	}
	for id := 100; ; id++ {
		l.say(t, fmt.Sprintf(`{"id":%d,"prefixes":["%sx/%d%s"]}`, id, state, id, long))
		_, err := l.list()
		if err == nil && (id-99)*len(long) <= maxRequestBytes {
			continue
		}
		if err == nil || !containsAll(err.Error(), "more than 1048576 bytes") || (id-99)*len(long) < maxRequestBytes-maxRequest {
			t.Errorf("after %d mirrors: %v", id-99, err)
		}
		return
	}
}

// A client that takes too long to read what it asked for is cut off: the state of when it
// asked is kept for it.
func TestSlowReadersAreCutOff(t *testing.T) {
	base := memory.New()
	r := newReplica(t, base)
	put(t, base, "x/n", "0")
	l := r.begin("h1")
	r.hub.mu.Lock()
	r.hub.listsFor = -1
	r.hub.mu.Unlock()
	l.say(t, `{"id":1,"prefixes":["`+state+`x/"]}`)
	if _, err := l.list(); err == nil || !containsAll(err.Error(), "it ended the stream", "not read fast enough") {
		t.Errorf("it is told: %v", err)
	}
	eventually(t, "the stream is counted", func() bool { return r.hub.Stats().Cut == 1 })
}
