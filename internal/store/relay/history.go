package relay

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store"
)

const (
	// maxHistory and maxHistoryBytes bound the commits that a Hub remembers.
	maxHistory      = 16384
	maxHistoryBytes = 16 << 20
)

// history has the newest commits, so that a client that lacks some of them gets only these.
// The zero history has none. Its hub's mutex guards it; slices of commits that it returned
// stay as they are.
type history struct {
	commits []commit // in order
	bytes   int
	base    commit         // the commits follow the state that this one left
	rev     store.Revision // of the newest
	place   string         // likewise
	of      store.Incarnation
}

// commit is what one commit, or what a list found several to have left, changed.
type commit struct {
	rev    store.Revision
	place  string
	listed bool // it follows the state of the commit before it, and none between
	rows   []store.KV
	bytes  int
}

// begin forgets all commits: the next follow the state of a revision.
func (h *history) begin(b store.Batch) {
	*h = history{base: commit{rev: b.Revision, place: b.Place}, rev: b.Revision, place: b.Place, of: b.Store}
}

// continues reports whether a batch follows what the history has: it is a commit, or what a
// list of the same store found several to have left.
func (h *history) continues(b store.Batch) bool {
	return !b.Listed || !b.Snapshot && !b.Older && b.Revision >= h.rev && b.Store.Same(h.of)
}

// add adds the next batch, as far as it is relayed.
func (h *history) add(b store.Batch, served func(string) bool) {
	if b.Revision <= h.rev {
		return
	}
	c := commit{rev: b.Revision, place: b.Place, listed: b.Listed, rows: make([]store.KV, 0, len(b.Events)), bytes: 64}
	for _, e := range b.Events {
		if e.KV.Key == store.StoreIdentityKey { // all clients have to list
			h.begin(b)
			return
		}
		if !served(e.KV.Key) {
			continue
		}
		c.rows = append(c.rows, e.KV)
		c.bytes += len(e.KV.Key) + len(e.KV.Value)
	}
	h.commits = append(h.commits, c)
	h.bytes += c.bytes
	h.rev, h.place = b.Revision, b.Place
	n := 0
	for ; len(h.commits)-n > maxHistory || h.bytes > maxHistoryBytes && n < len(h.commits); n++ {
		h.bytes -= h.commits[n].bytes
		h.base = commit{rev: h.commits[n].rev, place: h.commits[n].place}
	}
	h.commits = h.commits[n:]
}

// after returns the commits since a revision; false = it does not have all of them. A row
// that was made and deleted between two lists is in neither, and may be in the state of a
// revision between them: what the second list changed says nothing of it.
func (h *history) after(rev store.Revision) ([]commit, bool) {
	if rev == 0 || rev < h.base.rev || rev > h.rev {
		return nil, false
	}
	n := len(h.commits)
	for n > 0 && h.commits[n-1].rev > rev {
		n--
	}
	if n < len(h.commits) && h.commits[n].listed && h.before(n).rev != rev {
		return nil, false
	}
	return h.commits[n:len(h.commits):len(h.commits)], true
}

// before returns the commit whose state the n-th follows.
func (h *history) before(n int) commit {
	if n == 0 {
		return h.base
	}
	return h.commits[n-1]
}

// since is after of who knows a revision by its place in the store's journal; empty = the
// store has none. A revision of another place is one of a store at an older state.
func (h *history) since(rev store.Revision, place string) ([]commit, bool) {
	commits, ok := h.after(rev)
	n := len(h.commits) - len(commits)
	switch {
	case !ok || (place == "") != (h.place == ""):
		return nil, false
	case place == "":
		return commits, true
	}
	was := h.before(n)
	return commits, was.rev == rev && was.place == place
}

// difference is what commits left of a topic's rows.
func (t *topic) difference(commits []commit, show func(Grade, store.KV) (store.KV, bool)) (rows []api.MirrorRow) {
	seen := map[string]bool{}
	for _, c := range slices.Backward(commits) {
		for _, kv := range c.rows {
			if seen[kv.Key] || !t.covers(kv.Key) {
				continue
			}
			seen[kv.Key] = true
			if kv, shown := show(t.grade, kv); shown {
				rows = append(rows, toWire(kv))
			}
		}
	}
	return rows
}

func (t *topic) covers(key string) bool {
	for _, p := range t.prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}
