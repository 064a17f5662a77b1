package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
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
func TestConflictHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
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
func TestMirrorHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
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

// A registration whose session was lost is made anew, with the role it had.
func TestRegistrationSurvivesSessionLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		var troubles []error
		r, err := store.Register(t.Context(), st, store.Service{ServiceName: "netmaster", HostAddr: "10.0.0.1", Port: 9999}, func(err error) { troubles = append(troubles, err) })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SetRole(t.Context(), "leader"); err != nil {
			t.Fatal(err)
		}
		st.Unavailable(true)
		st.ExpireSessions()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		if len(troubles) == 0 || !errors.Is(troubles[0], model.ErrUnavailable) {
			t.Errorf("troubles: %v", troubles)
		}
		st.Unavailable(false)
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		got, err := store.Services(t.Context(), st, "netmaster")
		if err != nil || len(got) != 1 || got[0].Role != "leader" {
			t.Errorf("after the store came back: %v, %v", got, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A leader whose session is lost ends its term at once and stands again.
func TestLeaderLosesSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		var terms []store.Fence
		ended := make(chan error, 1)
		go func() {
			ended <- store.Candidate{
				Store: st, Key: store.LeaderKey, Value: "me:1",
				Lead: func(ctx context.Context, term store.Fence) error {
					terms = append(terms, term)
					<-ctx.Done()
					return ctx.Err() // the term is lost: no reason to end the candidacy
				},
			}.Run(ctx)
		}()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		st.ExpireSessions()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		if len(terms) != 2 || terms[1].Create <= terms[0].Create {
			t.Errorf("terms: %v, want two", terms)
		}
	})
}

// The log of the in-memory store is bounded: a mirror far behind re-lists.
func TestMemoryForgets(t *testing.T) {
	st := store.NewMemory()
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

// TestTablesAreComplete checks that every declaration has all that its table
// needs, and that the check itself sees what is missing.
func TestTablesAreComplete(t *testing.T) {
	tables := []interface {
		Complete() bool
		Noun() string
	}{
		store.Globals, store.Tenants, store.Hosts, store.Networks, store.Groups, store.Policies, store.Rules,
		store.Endpoints, store.Identities, store.Addresses, store.GroupPools, store.Names, store.Subnets,
		store.Numbers, store.InternedIdentities, store.References, store.HostStatuses,
		store.NetProfiles, store.AppProfiles, store.LoadBalancers, store.ExtContracts, store.Volumes,
		store.VolumeProfiles, store.Bgps, store.AciGws,
	}
	for _, table := range tables {
		if !table.Complete() {
			t.Errorf("the declaration of %s lacks a part", table.Noun())
		}
	}
	if store.NewTable(store.TableSpec[string, string]{Noun: "x", Version: 1}).Complete() {
		t.Error("a table without functions counts as complete")
	}
}
