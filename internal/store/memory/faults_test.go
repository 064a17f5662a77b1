package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

const stateX = store.Root + "state/x"

func putX(t *testing.T, st store.Store, value string) (runs int) {
	t.Helper()
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		runs++
		tx.Put(stateX, []byte(value), nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return runs
}

// Conflict makes exactly as many commits fail as asked for, and too many are
// model.ErrConflict.
func TestConflictsFailAsOftenAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		st.Conflict(3)
		if runs := putX(t, st, "1"); runs != 4 {
			t.Errorf("ran %d times, want 4", runs)
		}
		st.Conflict(1000)
		if _, err := st.Update(t.Context(), func(tx store.Tx) error { tx.Delete(stateX); return nil }); !errors.Is(err, model.ErrConflict) {
			t.Errorf("for ever in conflict: %v", err)
		}
	})
}

// A paused connection delivers nothing until it is resumed, while others go on;
// what is compacted meanwhile comes as a difference; dropped watches re-list.
func TestPausedMirrorsDeliverNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		putX(t, st, "0")
		var got, other []string
		var wait []func()
		watch := func(st store.Store, got *[]string) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = st.Mirror(ctx, []string{store.Root}, func(b store.Batch) error { // ends with ctx
					for _, e := range b.Events {
						*got = append(*got, string(e.KV.Value))
					}
					return nil
				})
			}()
			wait = append(wait, func() { cancel(); <-ended })
		}
		mine := st.Client()
		watch(mine, &got)
		watch(st, &other)
		synctest.Wait()
		expect := func(what string, want, wantOther []string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff([][]string{want, wantOther}, [][]string{got, other}); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
			got, other = nil, nil
		}
		expect("snapshot", []string{"0"}, []string{"0"})
		mine.Pause(true)
		putX(t, st, "1")
		putX(t, st, "2")
		expect("paused", nil, []string{"1", "2"})
		mine.Pause(false)
		expect("resumed", []string{"1", "2"}, nil)
		mine.Pause(true)
		putX(t, st, "3")
		putX(t, st, "4")
		synctest.Wait()
		st.Compact()
		expect("paused again", nil, []string{"3", "4"})
		mine.Pause(false)
		expect("resumed after compaction", []string{"4"}, nil)
		mine.DropWatches()
		putX(t, st, "5")
		expect("dropped", []string{"5"}, []string{"5"})
		for _, f := range wait {
			f()
		}
	})
}

// The log of the in-memory store is bounded: a mirror far behind re-lists.
func TestMirrorsFarBehindListAgain(t *testing.T) {
	st := memory.New()
	for range 10_000 {
		putX(t, st, "x")
	}
	_, rev, err := st.Range(t.Context(), store.Root)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := st.ReadKeys(t.Context(), rev-9_000, []string{stateX}); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("reading 9,000 revisions back: %v", err)
	}
	if _, _, err := st.ReadKeys(t.Context(), rev-1_000, []string{stateX}); err != nil {
		t.Errorf("reading 1,000 revisions back: %v", err)
	}
}
