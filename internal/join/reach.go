package join

import (
	"cmp"
	"fmt"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// walDir is where etcd keeps its log below a data directory: only who has one has
// taken part in a cluster.
func walDir(dir string) string { return filepath.Join(dir, "member", "wal") }

// Reach is how far the data of a directory go. Of members that were lost together the
// one that reaches farthest has all that their majority committed.
type Reach struct{ Term, Index uint64 }

// Compare is -1 where r reaches less far than o, 1 where it reaches farther.
func (r Reach) Compare(o Reach) int {
	return cmp.Or(cmp.Compare(r.Term, o.Term), cmp.Compare(r.Index, o.Index))
}

// ReachOf reads how far a directory of a member that does not run goes. Nothing is
// changed.
func ReachOf(dir string) (r Reach, err error) {
	fail := func(err error) (Reach, error) {
		return Reach{}, fmt.Errorf("read how far the data in %s go: %w", dir, err)
	}
	log := zap.NewNop()
	snaps, err := wal.ValidSnapshotEntries(log, walDir(dir))
	if err != nil {
		return fail(err)
	}
	last := snaps[len(snaps)-1]
	w, err := wal.OpenForRead(log, walDir(dir), last)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = w.Close() }() // of what was only read
	_, _, entries, err := w.ReadAll()
	if err != nil {
		return fail(err)
	}
	r = Reach{last.GetTerm(), last.GetIndex()}
	if n := len(entries); n > 0 {
		r = Reach{entries[n-1].GetTerm(), entries[n-1].GetIndex()}
	}
	return r, nil
}
