package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store"
)

// FuzzRow: a row is the same at the other end, whatever its key and value are.
func FuzzRow(f *testing.F) {
	f.Add("/contiv.io/state/a", []byte(`{"v":1,"d":"<&>"}`), int64(3), int64(7), 1)
	f.Add("", []byte{0xff, 0}, int64(-1), int64(0), 1<<30)
	f.Add("/contiv.io/state/\xff", []byte("x"), int64(3), int64(7), 3)
	f.Add("k", []byte("\u2028\ufffd\x00"), int64(0), int64(9), 2)
	f.Fuzz(func(t *testing.T, key string, value []byte, made, changed int64, id int) {
		want := store.KV{Key: key, Value: value, Create: store.Revision(made), Mod: store.Revision(changed)}
		if !want.Exists() {
			want.Value = nil
		}
		sent := addressed(nil, strconv.AppendInt(nil, int64(id), 10), line(api.MirrorMessage{Rows: []api.MirrorRow{toWire(want)}, Revision: changed}))
		l := &link{lines: newLines(bytes.NewReader(sent))}
		m, err := l.read()
		if err != nil || m.ID != id || m.Revision != changed {
			t.Fatalf("%s became %+v, %v", sent, m, err)
		}
		if d := cmp.Diff([]store.KV{want}, allFromWire(m.Rows), cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
		if _, err := l.read(); err == nil {
			t.Errorf("more than one line: %q", sent)
		}
	})
}

// still is a Source in which nothing happens.
type still []store.KV

func (s still) Rows() ([]store.KV, store.Revision, string)        { return s, 9, "place" }
func (still) Fresh(context.Context) (store.Revision, error)       { return 9, nil }
func (still) Older(_ context.Context, since string) (bool, error) { return since == "newer", nil }

// lasts is a reader that ends when it is closed.
type lasts chan struct{}

func (l lasts) Read([]byte) (int, error) {
	<-l
	return 0, io.EOF
}

// FuzzAsks: whatever a client asks for, it gets of what is relayed what lies under the
// prefixes of its mirrors, as it is stored; or the stream ends with a reason. Nothing is left
// of it then.
func FuzzAsks(f *testing.F) {
	rows := still{
		{Key: store.StoreIdentityKey, Value: []byte("who"), Create: 1, Mod: 1},
		{Key: state + "a/1", Value: []byte("x"), Create: 2, Mod: 3},
		{Key: state + "a/2", Value: []byte{0xff}, Create: 2, Mod: 2},
		{Key: state + "b", Value: []byte("<y>"), Create: 4, Mod: 9},
		{Key: store.Root + "secret", Value: []byte("z"), Create: 1, Mod: 1},
	}
	all := map[string]store.KV{}
	for _, kv := range rows {
		all[kv.Key] = kv
	}
	for _, seed := range []string{
		"", "{}", "x", "{\"id\":1}\n{\"id\":1}",
		`{"id":1,"prefixes":["/contiv.io/state/"]}` + "\n" + `{"id":1,"end":true}` + "\n" + `{"id":1,"prefixes":["/contiv.io/state/a/","/contiv.io/state/a/1"],"commits":true}`,
		`{"id":2,"prefixes":["/contiv.io/state/b"],"since":"newer"}`,
		`{"id":3,"prefixes":["/contiv.io/"]}`, `{"id":3,"prefixes":[""]}`, `{"id":-1,"prefixes":["/contiv.io/state/"]}`, `{"id":5,"since":"` + strings.Repeat("x", maxSince+1) + `"}`,
	} {
		f.Add([]byte(seed))
	}
	const last = 1 << 40 // of the mirror by which it is known that all was read
	f.Fuzz(func(t *testing.T, data []byte) {
		h := NewHub(rows, []string{state}, Open{}, time.Hour)
		under := map[int][]string{}
		for l := range bytes.Lines(data) {
			var ask api.MirrorRequest
			if json.Unmarshal(l, &ask) == nil {
				under[ask.ID] = append(under[ask.ID], ask.Prefixes...)
			}
		}
		if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
			data = append(bytes.Clone(data), '\n')
		}
		end, ended, told := make(lasts), false, false
		stop := func() {
			if !ended {
				ended = true
				close(end)
			}
		}
		asks := io.MultiReader(bytes.NewReader(data), strings.NewReader(`{"id":`+strconv.Itoa(last)+`,"prefixes":["/contiv.io/state/b"]}`+"\n"), end)
		err := h.Serve(t.Context(), "h1", asks, stop, func(sent []byte) error {
			for l := range bytes.Lines(sent) {
				var m api.MirrorMessage
				if err := json.Unmarshal(l, &m); err != nil || len(l) > maxLine {
					t.Errorf("%q is told: %v", l, err)
				}
				for _, kv := range allFromWire(m.Rows) {
					if d := cmp.Diff(all[kv.Key], kv); d != "" || !h.served(kv.Key) {
						t.Errorf("%s is told: %s", kv.Key, d)
					}
					if m.ID != last && !store.NewMirrorState(under[m.ID], false).Wants(kv.Key) {
						t.Errorf("%s is told to mirror %d of %q", kv.Key, m.ID, under[m.ID])
					}
				}
				if told = told || m.End != ""; m.ID == last && m.Revision != 0 {
					stop()
				}
			}
			return nil
		})
		if err == nil || told == errors.Is(err, context.Canceled) {
			t.Errorf("ended by %v, told %v", err, told)
		}
		if len(h.streams)+len(h.named)+len(h.topics)+len(h.interested)+len(h.at)+len(h.lengths) > 0 {
			t.Errorf("left: %+v", h)
		}
	})
}

// answers is a stream that tells all once it is asked.
type answers struct {
	io.Reader
	asked lasts
	once  bool
}

func (a *answers) Write(b []byte) (int, error) {
	if !a.once {
		a.once = true
		close(a.asked)
	}
	return len(b), nil
}

func (*answers) Close() error { return nil }

// FuzzMessages: whatever a netmaster tells, a mirror begins with a list, its revisions grow,
// and what it has told its consumer, put together, is what the messages say when they are
// simply read one after the other.
func FuzzMessages(f *testing.F) {
	list := `{"id":1,"list":true,"rows":[{"k":"/contiv.io/state/a","c":2,"m":3,"t":"x"}],"revision":5,"place":"p"}` + "\n"
	for _, seed := range []string{
		"", "x\n", `{"fresh":true}`, `{"end":"why"}`,
		list, list + list, `{"id":1,"list":true,"rows":[{"k":"/contiv.io/state/b","c":2,"m":3,"d":"/w=="}]}` + "\n" + list,
		list + `{"id":1,"rows":[{"k":"/contiv.io/state/a","m":6}],"revision":6}` + "\n" + `{"id":1,"revision":7}`,
		list + `{"id":1,"rows":[{"k":"/contiv.io/state/a","c":2,"m":3}],"revision":4}`,
		list + `{"id":1,"list":true,"revision":6,"older":true,"identity":{"k":"/contiv.io/store","c":1,"m":1,"t":"{\"v\":1,\"d\":{\"id\":\"i\",\"epoch\":2}}"}}`,
		list + `{"id":1,"rows":[{"k":"/contiv.io/secret","c":6,"m":6}],"revision":6}` + "\n" + `{"id":2,"rows":[{"k":"/contiv.io/state/c","c":6,"m":6}],"revision":6}`,
		`{"id":1,"rows":[{"k":"/contiv.io/state/c","c":6,"m":6}],"revision":6}`,
		list + `{"id":1,"list":true,"rows":[{"k":"/contiv.io/state/a","c":2,"m":4,"t":"y"},{"k":"/contiv.io/state/a","c":2,"m":3,"t":"x"},{"kd":"L2NvbnRpdi5pby9zdGF0ZS//","c":2,"m":3}],"revision":6}`,
		list + `{"id":1,"withheld":true}` + "\n" + `{"id":1,"rows":[{"k":"/contiv.io/state/c","c":6,"m":6}],"revision":6}`,
		list + `{"id":1,"resumed":true,"rows":[{"k":"/contiv.io/state/c","c":6,"m":6}],"revision":5}` + "\n" + `{"id":1,"withheld":true}` + "\n" + list,
		`{"id":1,"resumed":true,"revision":5}`,
		list + `{"id":1,"list":true,"rows":[{"k":"/contiv.io/state/a","m":6},{"k":"/contiv.io/state/a","c":2,"m":3,"t":"x"},{"k":"/contiv.io/state/b","m":6}],"revision":6}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		asked := make(lasts)
		conn := &answers{Reader: io.MultiReader(asked, bytes.NewReader(data)), asked: asked}
		l := newLink("h", conn)
		ran := make(chan error, 1)
		go func() { ran <- l.run(time.Hour) }()
		have, listed, last := map[string]store.KV{}, false, store.Revision(0)
		m := &mirror{state: store.NewMirrorState([]string{state}, false), onState: func(error) {}}
		m.withheld = func() { clear(have) }
		m.fn = func(b store.Batch) error {
			if !listed && !b.Snapshot || b.Revision <= last && !b.Listed {
				t.Errorf("after %d comes %+v", last, b)
			}
			if listed, last = true, b.Revision; b.Snapshot {
				clear(have)
			}
			for _, e := range b.Events {
				if !strings.HasPrefix(e.KV.Key, state) {
					t.Errorf("%s is told of", e.KV.Key)
				}
				if have[e.KV.Key] = e.KV; e.Deleted() {
					delete(have, e.KV.Key)
				}
			}
			return nil
		}
		_, reason, err := l.follow(t.Context(), m)
		if broke := <-ran; broke == nil || reason == nil || err != nil {
			t.Errorf("ended by %v, %v, %v", broke, reason, err)
		}
		if want, ok := plainly(data); ok && !maps.EqualFunc(have, want, func(a, b store.KV) bool { return cmp.Equal(a, b, cmpopts.EquateEmpty()) }) {
			t.Errorf("%q is taken for %v, and is %v", data, have, want)
		}
	})
}

// plainly reads the messages of a mirror; false = no netmaster sends that: more than waits.
func plainly(data []byte) (have map[string]store.KV, ok bool) {
	have = map[string]store.KV{}
	var list map[string]store.KV
	last, listed, n := int64(0), false, 0
	for l := range bytes.Lines(data) {
		var m api.MirrorMessage
		if n++; n > maxUnread {
			return nil, false
		}
		if json.Unmarshal(l, &m) != nil || m.End != "" {
			break
		}
		if m.ID != 1 {
			continue
		}
		if m.Withheld {
			have, list, listed = map[string]store.KV{}, nil, false
			continue
		}
		if !m.List && (!listed || m.Revision < last || m.Revision == last && (!m.Resumed || len(m.Rows) > 0)) {
			break
		}
		for _, kv := range allFromWire(m.Rows) {
			to := have
			if m.List {
				if list == nil {
					list = map[string]store.KV{}
				}
				to = list
			}
			switch {
			case !strings.HasPrefix(kv.Key, state):
			case kv.Exists():
				to[kv.Key] = kv
			default:
				delete(to, kv.Key)
			}
		}
		switch {
		case !m.List:
			last = m.Revision
		case m.Revision != 0:
			have, list, last, listed = list, nil, m.Revision, true
			if have == nil {
				have = map[string]store.KV{}
			}
		}
	}
	return have, true
}
