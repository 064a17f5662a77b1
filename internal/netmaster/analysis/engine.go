package analysis

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// restAfter is how long after the last question the Engine keeps what it has compiled.
const restAfter = 10 * time.Minute

// Source is netmaster's own copy of the store.
type Source interface {
	// Rows are all rows there, at a revision.
	Rows() ([]store.KV, store.Revision, string)
	// Fresh returns when the copy has every change that ended before the call.
	Fresh(ctx context.Context) (store.Revision, error)
	// ReadCached reads rows as they are there.
	store.CachedReader
}

// Engine answers questions about the cluster. The first question compiles the cluster; from
// then on changes are entered as they come, until restAfter has passed without a question. While
// there are assertions, which each commit asks about, they always are. Its methods may be called
// from several goroutines.
type Engine struct {
	log    *slog.Logger
	source Source

	mu   sync.Mutex
	rows *clusterRows // nil = there are no questions
	rest *time.Timer

	queued  sync.Mutex
	batches []store.Batch // that came while a question was answered
}

// New returns an Engine that has not been asked yet.
func New(source Source, log *slog.Logger) *Engine { return &Engine{log: log, source: source} }

// Apply enters a change of the store, after Source has it. It does not wait for answers.
func (e *Engine) Apply(b store.Batch) {
	e.queued.Lock()
	e.batches = append(e.batches, b)
	e.queued.Unlock()
	if e.mu.TryLock() {
		defer e.mu.Unlock()
		e.enterBatches()
	}
}

// enterBatches enters what Apply was called with. The caller has mu.
func (e *Engine) enterBatches() {
	e.queued.Lock()
	all := e.batches
	e.batches = nil
	e.queued.Unlock()
	for _, b := range all {
		switch {
		case e.rows == nil:
		case b.Listed: // it may be another store, or an older state: the next question reads all rows
			e.rows = nil
		case b.Revision > e.rows.rev:
			e.rows.apply(b.Events, b.Revision)
		}
	}
}

// ask calls answer with the rows as they are after every change that ended before the call.
func (e *Engine) ask(ctx context.Context, answer func(*clusterRows) error) error {
	if _, err := e.source.Fresh(ctx); err != nil {
		return err
	}
	return e.askCached(ctx, answer)
}

// askCached calls answer with the rows as far as the source has followed the store.
func (e *Engine) askCached(ctx context.Context, answer func(*clusterRows) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := ctx.Err(); err != nil { // it has waited for other answers
		return err
	}
	e.enterBatches()
	if e.rows == nil {
		rows := newClusterRows(e.log)
		kvs, rev, _ := e.source.Rows()
		events := make([]store.Event, len(kvs))
		for i, kv := range kvs {
			events[i] = store.Event{KV: kv}
		}
		rows.apply(events, rev)
		e.rows = rows
	}
	if e.rest != nil {
		e.rest.Stop()
	}
	e.rest = time.AfterFunc(restAfter, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.rows != nil && len(e.rows.asserted.assertions) == 0 {
			e.rows = nil
		}
	})
	e.rows.compile()
	return answer(e.rows)
}
