package memory

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/contiv/netplugin/v2/internal/store"
)

// branch is the history of a store from where data were put into it: as of Consul, a backup
// is the end of what came after it, also where revisions go on.
type branch struct {
	id     string
	after  store.Revision // in the branch before
	begins store.Revision // the same, as this store counts
}

// branch begins a branch after data; nil = an empty store's. The caller holds the lock.
func (db *database) branch(d *Data) {
	b := branch{id: uuid.NewString(), begins: db.rev}
	db.branches = nil
	if d != nil {
		db.branches, b.after = slices.Clone(d.branches), d.rev
	}
	db.branches = append(db.branches, b)
}

// newest returns the branch that grows, "" = no journal is kept, and the newest commit's
// place, in whatever branch that is. The caller holds the lock.
func (db *database) newest() (id, at string) {
	if !db.journal {
		return "", ""
	}
	i, rev := len(db.branches)-1, db.rev
	for id = db.branches[i].id; i > 0 && rev == db.branches[i].begins; i-- {
		rev = db.branches[i].after
	}
	return id, place(rev, db.branches[i].id)
}

// place names a commit of a branch.
func place(rev store.Revision, branch string) string {
	if branch == "" {
		return ""
	}
	return fmt.Sprintf("%d.%s", rev, branch)
}

// isMissing reports whether a place is not in the history. The caller holds the lock.
func (db *database) isMissing(place string) bool {
	n, id, _ := strings.Cut(place, ".")
	rev, err := strconv.ParseInt(n, 10, 64)
	if err != nil || !db.journal {
		return false
	}
	i := slices.IndexFunc(db.branches, func(b branch) bool { return b.id == id })
	return i < 0 || i+1 < len(db.branches) && store.Revision(rev) > db.branches[i+1].after
}

// Older implements store.Historian.
func (m *Store) Older(ctx context.Context, place string) (bool, error) {
	if err := m.reachable(ctx); err != nil {
		return false, err
	}
	m.db.mu.Lock()
	defer m.db.mu.Unlock()
	return m.db.isMissing(place), nil
}
