package relay

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// graded is an Access whose clients have the grade that a test gives them: "all" reads
// everything, "some" the keys with "open" in them, and no grade reads nothing.
type graded struct {
	mu    sync.Mutex
	grade string
}

func (g *graded) Grade(string, []string) (Grade, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Grade{Name: g.grade}, nil
}

func (*graded) Show(g Grade, kv store.KV) (store.KV, bool) {
	return kv, g.Name != "some" || strings.Contains(kv.Key, "open") // without a grade the hub must not ask
}

func (g *graded) set(grade string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grade = grade
}

// newGraded returns a replica of a store with an identity, and its Access.
func newGraded(t *testing.T, base *memory.Store, grade string) (*replica, *graded) {
	t.Helper()
	identify(t, base)
	r, g := newReplica(t, base), &graded{grade: grade}
	r.hub.mu.Lock()
	r.hub.access = g
	r.hub.mu.Unlock()
	return r, g
}

// follows waits until the hub could go on with a mirror from before a revision.
func (r *replica) follows(rev store.Revision) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint("revision ", rev), func() bool {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		return r.hub.history.rev >= rev && r.hub.rev >= rev
	})
}

// until reads until a message for a mirror fits, and returns that and all rows before it.
func (l *link) until(t *testing.T, id int, fits func(api.MirrorMessage) bool) (m api.MirrorMessage, rows map[string]bool) {
	t.Helper()
	rows = map[string]bool{}
	for {
		m, err := l.read()
		if err != nil {
			t.Fatal(err)
		}
		if m.ID != id {
			continue
		}
		for _, kv := range allFromWire(m.Rows) {
			rows[strings.TrimPrefix(kv.Key, state)] = true
		}
		if fits(m) {
			return m, rows
		}
	}
}

func isAnswer(m api.MirrorMessage) bool { return m.Withheld || m.Revision != 0 }

// TestResumeSendsWhatTheGradeShows: a client that goes on where it was gets the rows of its
// grade alone; of another grade it gets a list, and without a grade nothing, whatever grade
// it says that it had.
func TestResumeSendsWhatTheGradeShows(t *testing.T) {
	for _, test := range []struct {
		was, now          string
		resumed, withheld bool
		rows              string
	}{
		{"some", "some", true, false, "map[x/open2:true]"},
		{"all", "all", true, false, "map[x/closed2:true x/open2:true]"},
		{"some", "all", false, false, "map[x/closed1:true x/closed2:true x/open1:true x/open2:true]"},
		{"all", "some", false, false, "map[x/open1:true x/open2:true]"},
		{"", "some", false, false, "map[x/open1:true x/open2:true]"},
		{"some", "", false, true, "map[]"},
		{"", "", false, true, "map[]"},
	} {
		t.Run(fmt.Sprintf("from %q to %q", test.was, test.now), func(t *testing.T) {
			base := memory.New()
			r, g := newGraded(t, base, "all")
			at := put(t, base, "x/open1", "1", "x/closed1", "1")
			r.begin("h1").say(t, `{"id":1,"prefixes":["`+state+`x/"]}`)
			r.follows(at)
			rev := put(t, base, "x/open2", "2", "x/closed2", "2")
			r.follows(rev)
			g.set(test.now)
			l := r.begin("h1")
			l.say(t, fmt.Sprintf(`{"id":1,"prefixes":["%sx/"],"at":%d,"store":%q,"grade":%q}`, state, at, store.Incarnation{ID: "a", Generation: 1}.Mark(), test.was))
			m, rows := l.until(t, 1, isAnswer)
			if m.Resumed != test.resumed || m.Withheld != test.withheld || fmt.Sprint(rows) != test.rows {
				t.Errorf("resumed: %v, withheld: %v, with %v", m.Resumed, m.Withheld, rows)
			}
		})
	}
}

// TestCollapsedQueueSendsWhatTheGradeShows: what commits left for a slow client has the rows
// of its grade alone.
func TestCollapsedQueueSendsWhatTheGradeShows(t *testing.T) {
	base := memory.New()
	r, _ := newGraded(t, base, "some")
	l := r.begin("h1")
	put(t, base, "x/open0", "")
	l.say(t, `{"id":1,"prefixes":["`+state+`x/"]}`)
	l.until(t, 1, isAnswer)
	big, rev := strings.Repeat("x", maxWaitingBytes/4), store.Revision(0)
	for i := range 12 {
		rev = put(t, base, fmt.Sprint("x/open", i), big, fmt.Sprint("x/closed", i), "secret")
	}
	r.follows(rev)
	_, rows := l.until(t, 1, func(m api.MirrorMessage) bool { return m.Revision >= int64(rev) })
	if r.hub.Stats().Collapsed == 0 {
		t.Error("its queue was not collapsed")
	}
	for key := range rows {
		if strings.Contains(key, "closed") {
			t.Errorf("it reads %s", key)
		}
	}
	if !rows["x/open11"] {
		t.Errorf("it reads %v", rows)
	}
}

// TestWithheldListIsNotSent: a list that waits for a slow client is not sent once its rows are
// withheld.
func TestWithheldListIsNotSent(t *testing.T) {
	base := memory.New()
	r, g := newGraded(t, base, "all")
	put(t, base, "first/1", strings.Repeat("x", 2*partBytes), "first/2", "", "x/1", "secret")
	l := r.begin("h1")
	l.say(t, `{"id":1,"prefixes":["`+state+`first/"]}`)
	l.say(t, `{"id":2,"prefixes":["`+state+`x/"]}`)
	eventually(t, "both lists wait", func() bool { return r.hub.Stats().Lists == 2 }) // the first one is not read
	g.set("")
	r.hub.Regrade(Clients{Names: []string{"h1"}})
	if m, rows := l.until(t, 2, isAnswer); !m.Withheld || len(rows) > 0 {
		t.Errorf("it gets %v, and %+v", rows, m)
	}
}

// TestRegradeWithoutNewRowsReachesTheClient: a hub whose rows are ahead of the batch that
// changes what a client may read tells the client all the same.
func TestRegradeWithoutNewRowsReachesTheClient(t *testing.T) {
	base := memory.New()
	r, g := newGraded(t, base, "")
	rev := put(t, base, "x/1", "1")
	l := r.begin("h1")
	l.say(t, `{"id":1,"prefixes":["`+state+`x/"]}`)
	if m, _ := l.until(t, 1, isAnswer); !m.Withheld {
		t.Fatalf("it gets %+v", m)
	}
	r.follows(rev)
	g.set("all")
	r.hub.Apply(store.Batch{Revision: rev}, Clients{Names: []string{"h1"}})
	if m, rows := l.until(t, 1, isAnswer); m.Withheld || !rows["x/1"] {
		t.Errorf("it gets %v, and %+v", rows, m)
	}
}
