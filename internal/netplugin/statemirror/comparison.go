package statemirror

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

const (
	// comparisonPatience is how long a mirror may lag behind the list it is compared with.
	comparisonPatience = 5 * time.Second
	// comparisonPause is the time between two looks at rows that differ.
	comparisonPause = 100 * time.Millisecond
	// maxDifferences bounds Comparison.Differences.
	maxDifferences = 20
)

// Comparison is how this host's mirrors compare with the store.
type Comparison struct {
	Rows        int      // of the store that this host mirrors
	Differences []string // rows that differ, by Scope; the first maxDifferences
}

// StoreComparer compares what a host's mirrors have delivered with the store.
type StoreComparer struct {
	*shared
	mirrors *mirrorSet
	guard   *StoreGuard
}

// CompareWithStore lists all that this host mirrors once more, and compares it with what the
// mirrors have delivered. It changes nothing. A row that differs at first and not later had
// only been delivered later. The error is of kind model.ErrUnavailable when the store is not
// followed or does not answer within ctx.
func (c *StoreComparer) CompareWithStore(ctx context.Context) (Comparison, error) {
	c.mu.Lock()
	err := c.mirrors.stale()
	if err == nil {
		err = c.guard.stale()
	}
	var all []*mirror
	for _, m := range c.mirrors.byScope {
		if m.ready {
			all = append(all, m)
		}
	}
	c.mu.Unlock()
	if err != nil {
		return Comparison{}, model.Errorf(model.ErrUnavailable, "the store is not followed: %w", err)
	}
	slices.SortFunc(all, func(a, b *mirror) int { return strings.Compare(a.part.String(), b.part.String()) })
	var out Comparison
	for _, m := range all {
		n, differ, err := c.compareMirror(ctx, m)
		if err != nil {
			return Comparison{}, fmt.Errorf("compare %s with the store: %w", m.part, err)
		}
		out.Rows += n
		for _, k := range differ {
			if len(out.Differences) < maxDifferences {
				out.Differences = append(out.Differences, fmt.Sprintf("%s: %T %v", m.part, k, k))
			}
		}
	}
	return out, nil
}

// freshList is what a list of a Scope says now, and what has been committed since.
type freshList struct {
	mu     sync.Mutex
	values map[any]any
	rules  *tables.InForce
	listed bool
	again  waiting.Changes
}

func (f *freshList) enter(b store.Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Snapshot {
		f.values, f.rules = map[any]any{}, tables.NewInForce()
	}
	for _, e := range b.Events {
		if ch, err := f.rules.Decode(e); err == nil { // the mirror reports what cannot be read
			stage(f.values, ch)
		}
	}
	for _, ch := range f.rules.Rest() {
		stage(f.values, ch)
	}
	f.listed = true
	f.again.Notify()
	return nil
}

// compareMirror compares one mirror with a new list. It returns how many rows there are, and
// the keys of rows that differed all the time.
func (c *StoreComparer) compareMirror(ctx context.Context, m *mirror) (rows int, differ []any, err error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &freshList{values: map[any]any{}, rules: tables.NewInForce()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Store.Mirror(ctx, m.part.prefixes(), f.enter) // it ends with ctx; what it lacks is waited for
	}()
	defer func() {
		cancel()
		<-ended
	}()
	err = f.again.Until(ctx, func() (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.listed, nil
	})
	if err != nil {
		return 0, nil, model.Errorf(model.ErrUnavailable, "it cannot be listed: %w", err)
	}
	rows, differ = c.differences(m, f, nil)
	for begun := time.Now(); len(differ) > 0 && time.Since(begun) < comparisonPatience; {
		if err := waiting.Pause(ctx, comparisonPause); err != nil {
			return 0, nil, err
		}
		_, differ = c.differences(m, f, differ)
	}
	return rows, differ, nil
}

// differences returns the keys of rows that differ between a mirror and a list, of some, or
// of all for nil. A mirror that has ended meanwhile differs in nothing.
func (c *StoreComparer) differences(m *mirror, f *freshList, of []any) (rows int, differ []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.mirrors.byScope[m.part] != m || !m.ready {
		return 0, nil
	}
	if of == nil {
		for k := range f.values {
			of = append(of, k)
		}
		for k := range m.values {
			if _, there := f.values[k]; !there {
				of = append(of, k)
			}
		}
		rows = len(f.values)
	}
	for _, k := range of {
		switch k.(type) {
		case tables.ReplacementKey, tables.StagedKey: // which mirrors do not keep
			continue
		}
		if !reflect.DeepEqual(f.values[k], m.values[k]) {
			differ = append(differ, k)
		}
	}
	return rows, differ
}
