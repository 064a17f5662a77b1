package relay

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestSlowClientGetsWhatWaitedAsOneMessage: what waits for a client that does not read is
// bounded and delays no other client. Then it gets what that left, and no list.
func TestSlowClientGetsWhatWaitedAsOneMessage(t *testing.T) {
	base := memory.New()
	r := newReplica(t, base)
	conn, err := r.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slow := newLink("", conn)
	if m, err := slow.read(); err != nil || !m.Fresh {
		t.Fatal(m, err)
	}
	rev := put(t, base, "x/n", "0")
	if _, err := conn.Write([]byte(`{"id":1,"prefixes":["` + state + `x/"]}` + "\n")); err != nil {
		t.Fatal(err)
	}
	for m := (api.MirrorMessage{}); m.Revision == 0; {
		if m, err = slow.read(); err != nil {
			t.Fatal(err)
		}
	}
	a := newAgent(base.Client(), map[string]*replica{"r": r}, nil)
	t.Cleanup(func() { _ = a.Close() })
	s := watch(t, a, state+"x/")
	s.reaches(t, rev)
	big := strings.Repeat("x", maxWaitingBytes/16)
	for i := range 70 {
		rev = put(t, base, "x/n", fmt.Sprint(i, big))
		s.reaches(t, rev) // reading clients get it meanwhile
	}
	r.hub.mu.Lock()
	for st := range r.hub.streams {
		if st.bytes > 2*maxWaitingBytes {
			t.Errorf("%d bytes wait", st.bytes)
		}
	}
	r.hub.mu.Unlock()
	messages, m := 0, api.MirrorMessage{}
	for ; m.ID == 0 || m.Revision < int64(rev); messages++ {
		if m, err = slow.read(); err != nil || m.List {
			t.Fatal(m, err)
		}
	}
	if messages > 40 || fromWire(m.Rows[0]).Value == nil || string(fromWire(m.Rows[0]).Value) != fmt.Sprint(69, big) {
		t.Errorf("after %d messages it has %.10q", messages, m.Rows[0].Text)
	}
	if got := r.hub.Stats(); got.Collapsed == 0 || got.Lists != 2 || got.Cut != 0 {
		t.Errorf("what was done: %+v", got)
	}
}

// fake is a Source of what it is given.
type fake struct {
	rows []store.KV
	rev  store.Revision
}

func (f *fake) Rows() ([]store.KV, store.Revision, string)    { return f.rows, f.rev, "" }
func (f *fake) Older(context.Context, string) (bool, error)   { return false, nil }
func (f *fake) Fresh(context.Context) (store.Revision, error) { return f.rev, nil }

// When a netmaster has listed the store again, which may be another one or an older state
// of it, its streams end, and new lists are of its present state.
func TestStreamsEndWithAnotherStore(t *testing.T) {
	f := &fake{[]store.KV{{Key: state + "x", Value: []byte("1"), Create: 7, Mod: 7}}, 9}
	h := NewHub(f, []string{state}, Open{}, 0)
	list := func(more func(l *link)) (rows []api.MirrorRow, rev int64) {
		mine, theirs := net.Pipe()
		var serving sync.WaitGroup
		serving.Go(func() {
			_ = h.Serve(t.Context(), "", theirs, func() { _ = theirs.SetReadDeadline(time.Unix(1, 0)) }, func(b []byte) error { // the client gets a message
				_, err := theirs.Write(b)
				return err
			})
			_ = theirs.Close()
		})
		defer serving.Wait()
		defer mine.Close()
		l := newLink("", mine)
		for asked := false; ; {
			m, err := l.read()
			if err != nil {
				t.Fatal(err)
			}
			if !asked {
				asked = true
				if _, err := mine.Write([]byte(`{"id":1,"prefixes":["` + state + `"]}` + "\n")); err != nil {
					t.Fatal(err)
				}
			}
			if m.List {
				more(l)
				return m.Rows, m.Revision
			}
		}
	}
	list(func(l *link) {
		f.rows, f.rev = []store.KV{{Key: state + "y", Value: []byte("2"), Create: 3, Mod: 3}}, 4
		h.Apply(store.Batch{Revision: 4, Listed: true, Events: []store.Event{{KV: store.KV{Key: state + "x", Mod: 4}}, {KV: f.rows[0]}}}, Clients{})
		for {
			if m, err := l.read(); err != nil {
				if !containsAll(err.Error(), "it ended the stream", "again") {
					t.Error(err)
				}
				return
			} else if !m.Fresh {
				t.Fatalf("told of %+v", m)
			}
		}
	})
	if rows, rev := list(func(*link) {}); rev != 4 || len(rows) != 1 || rows[0].Key != state+"y" {
		t.Errorf("the new list is %v at %d", rows, rev)
	}
}

// Bad asks end the stream with a sentence, and what is not served is refused.
func TestBadRequestsEndTheStream(t *testing.T) {
	base := memory.New()
	r := newReplica(t, base)
	r.hub.serves = []string{state + "x/"}
	for ask, want := range map[string]string{
		"{":                                     "not a request",
		`{"id":1,"prefixes":["` + state + `"]}`: "are not relayed",
		`{"id":1,"prefixes":["` + state + `x/"],"since":"` + strings.Repeat("1", maxSince+1) + `"}`: "at most 256 bytes",
		`{"id":1,"prefixes":["` + state + `alloc/"]}`:                                               "are not relayed",
		`{"id":0,"prefixes":["` + state + `x/"]}`:                                                   "not the id",
		`{"id":1}` + "\n" + `{"id":1}`:                                                              "not the id of another",
		`{"id":1}` + "\n" + `{"id":1,"end":true}` + "\n?":                                           "not a request",
	} {
		conn, err := r.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		asking.Go(func() { _, _ = conn.Write([]byte(ask + "\n")) }) // the end tells
		l := newLink("", conn)
		for err == nil {
			_, err = l.read()
		}
		if !containsAll(err.Error(), "it ended the stream", want) {
			t.Errorf("%s: %v, want %q", ask, err, want)
		}
		_ = conn.Close()
		asking.Wait()
	}
	eventually(t, "nothing is kept of them", func() bool {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		return len(r.hub.streams)+len(r.hub.topics)+len(r.hub.at)+len(r.hub.lengths) == 0
	})
}

// Values pass as they are, whatever they are.
func TestValuesPassUnchanged(t *testing.T) {
	for _, v := range []string{"", "{\"v\":1,\"d\":{\"a\":\"<&>\u2028\"}}", "\xff\x00", "\x00", "é"} {
		kv := store.KV{Key: "k", Value: []byte(v), Create: 1, Mod: 2}
		if got := fromWire(toWire(kv)); !cmp.Equal(got, kv) {
			t.Errorf("%q becomes %+v", v, got)
		}
	}
	if got := fromWire(toWire(store.KV{Key: "k", Mod: 2})); got.Exists() || got.Value != nil {
		t.Errorf("a deletion becomes %+v", got)
	}
}
