package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/engine"
)

// done is one committed transaction of the history.
type done struct {
	rev    store.Revision
	reads  map[string]string // "list" is the rendered list
	writes map[string]string // "" = deleted
}

// Random transactions of several clients, lists included, are serializable in
// the order of their revisions: replayed one by one, each reads what it read.
func testSerializable(t *testing.T, b *bench) {
	const clients, each, keys = 6, 25, 5
	scope := key("ser/")
	var mu sync.Mutex
	var history []done
	var g errgroup.Group
	for c := range clients {
		st := b.open()
		update := st.Update
		if c%2 == 1 { // half of them read from memory first
			f := store.NewFollower(st, []string{scope}, func(store.Batch) error { return nil })
			if c%4 == 1 { // and half of these list from memory, too
				f.Ranges(scope)
			}
			b.follow(f)
			update = f.Update
		}
		rnd := rand.New(rand.NewPCG(uint64(c), 1))
		g.Go(func() error {
			for n := range each {
				var d done
				rev, err := update(b.ctx, func(tx store.Tx) error {
					d = done{reads: map[string]string{}, writes: map[string]string{}}
					for range 1 + rnd.IntN(2) {
						k := scope + strconv.Itoa(rnd.IntN(keys))
						kv, err := tx.Get(k)
						if err != nil {
							return err
						}
						if _, own := d.writes[k]; !own {
							d.reads[k] = string(kv.Value)
						}
					}
					if rnd.IntN(4) == 0 {
						if err := tx.Observe(scope); err != nil {
							return err
						}
						kvs, err := tx.Range(scope, 0)
						if err != nil {
							return err
						}
						now := map[string]string{}
						for _, kv := range kvs {
							now[kv.Key] = string(kv.Value)
						}
						d.reads["list"] = renderMap(now)
					}
					k := scope + strconv.Itoa(rnd.IntN(keys))
					tx.Touch(scope)
					if rnd.IntN(4) == 0 {
						tx.Delete(k)
						d.writes[k] = ""
						return nil
					}
					d.writes[k] = fmt.Sprintf("%d.%d", c, n)
					tx.Put(k, []byte(d.writes[k]), nil)
					return nil
				})
				if err != nil {
					return fmt.Errorf("client %d, transaction %d: %w", c, n, err)
				}
				d.rev = rev
				mu.Lock()
				history = append(history, d)
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	sort.Slice(history, func(i, j int) bool { return history[i].rev < history[j].rev })
	now := map[string]string{}
	for i, d := range history {
		if i > 0 && history[i-1].rev == d.rev {
			t.Fatalf("two commits have revision %d", d.rev)
		}
		for k, v := range d.reads {
			want := now[k]
			if k == "list" {
				want = renderMap(now)
			}
			if v != want {
				t.Fatalf("the transaction at %d read %s as %q, which was %q then", d.rev, k, v, want)
			}
		}
		for k, v := range d.writes {
			if now[k] = v; v == "" {
				delete(now, k)
			}
		}
	}
}

func renderMap(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, k+"="+m[k])
	}
	return strings.Join(lines, " ")
}

// Two transactions that each read what the other writes cannot both commit on
// the old state.
func testWriteSkew(t *testing.T, b *bench) {
	for round := range 5 {
		x, y := fmt.Sprintf("w/%d/x", round), fmt.Sprintf("w/%d/y", round)
		b.put(x, "1", y, "1")
		var g errgroup.Group
		for _, mine := range []string{x, y} {
			st := b.open()
			g.Go(func() error {
				_, err := st.Update(b.ctx, func(tx store.Tx) error {
					sum := 0
					for _, name := range []string{x, y} {
						kv, err := tx.Get(key(name))
						if err != nil {
							return err
						}
						n, _ := strconv.Atoi(string(kv.Value))
						sum += n
					}
					if sum > 1 {
						tx.Put(key(mine), []byte("0"), nil)
					}
					return nil
				})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if b.value(x)+b.value(y) == "00" {
			t.Fatalf("round %d: both were taken", round)
		}
	}
}

// 16 clients that each list, find nothing in the way and create: one wins
// (known fault 2: 8 networks of one subnet).
func testPhantoms(t *testing.T, b *bench) {
	scope := key("tenant/blue/nets/")
	full := errors.New("overlap")
	var wins, losses atomic.Int64
	var g errgroup.Group
	clients := []store.Store{b.open(), b.open(), b.open(), b.open()}
	for i := range 16 {
		g.Go(func() error {
			_, err := clients[i%4].Update(b.ctx, func(tx store.Tx) error {
				if err := tx.Observe(scope); err != nil {
					return err
				}
				kvs, err := tx.Range(scope, 1)
				if err != nil {
					return err
				}
				if len(kvs) > 0 {
					return full
				}
				tx.Touch(scope)
				return tx.Create(scope+strconv.Itoa(i), nil, nil)
			})
			switch {
			case err == nil:
				wins.Add(1)
			case errors.Is(err, full):
				losses.Add(1)
			default:
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if wins.Load() != 1 || losses.Load() != 15 {
		t.Errorf("%d created, %d refused, want 1 and 15", wins.Load(), losses.Load())
	}
}

// testSweep removes the generation of a scope between what a lister read and
// its commit: it must notice what was created meanwhile, also when the scope had
// no generation at first.
func testSweep(t *testing.T, b *bench) {
	scope := key("tenant/green/nets/")
	sweeper := b.open()
	rev := b.update(func(tx store.Tx) error { tx.Put(cluster.LeaderKey, []byte("me"), nil); return nil })
	fence := store.Fence{Key: cluster.LeaderKey, Create: rev}
	for round := range 3 {
		runs, seen := 0, 0
		_, err := b.Update(b.ctx, func(tx store.Tx) error {
			runs++
			if err := tx.Observe(scope); err != nil {
				return err
			}
			kvs, err := tx.Range(scope, 0)
			if err != nil {
				return err
			}
			seen = len(kvs)
			if runs == 1 {
				created, err := sweeper.Update(b.ctx, func(tx store.Tx) error {
					tx.Touch(scope)
					return tx.Create(scope+strconv.Itoa(round), nil, nil)
				})
				if err != nil {
					return err
				}
				if n, err := engine.SweepGenerations(b.ctx, sweeper, fence, created+1); err != nil || n == 0 {
					return fmt.Errorf("swept %d generations: %w", n, err)
				}
			}
			tx.Put(key("listed"), []byte(strconv.Itoa(seen)), nil)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if seen != round+1 || runs < 2 {
			t.Errorf("round %d: the lister saw %d keys in %d runs, want %d in more than one", round, seen, runs, round+1)
		}
	}
	if n, err := engine.SweepGenerations(b.ctx, sweeper, fence, 1<<60); err != nil || n != 0 {
		t.Errorf("swept %d generations, %v; all had gone", n, err)
	}
	touched := b.update(func(tx store.Tx) error { tx.Touch(scope); return nil })
	if n, err := engine.SweepGenerations(b.ctx, sweeper, fence, touched); err != nil || n != 0 {
		t.Errorf("swept %d generations, %v; the one there is not older than that", n, err)
	}
	if _, err := engine.SweepGenerations(b.ctx, sweeper, store.Fence{Key: cluster.LeaderKey, Create: rev - 1}, 1<<60); !errors.Is(err, store.ErrFenced) {
		t.Errorf("sweep of a term that has ended: %v, want %v", err, store.ErrFenced)
	}
}

// 16 creators and one lister in one scope all make progress with bounded
// retries (design.md, "Phantoms"): the lister is made to lose three times, then
// its claim holds the creators off.
func testCreatorsAndLister(t *testing.T, b *bench) {
	scope := key("tenant/blue/rules/")
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var created [16]atomic.Int64
	progress := func() (sum, least int64) {
		least = created[0].Load()
		for i := range created {
			n := created[i].Load()
			sum, least = sum+n, min(least, n)
		}
		return sum, least
	}
	wake := make(chan struct{}, 1)
	await := func(cond func() bool) {
		for !cond() {
			select {
			case <-wake:
			case <-b.ctx.Done():
				t.Fatal("no progress")
			}
		}
	}
	var creators errgroup.Group
	clients := []store.Store{b.open(), b.open()}
	for i := range created {
		creators.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := clients[i%2].Update(b.ctx, func(tx store.Tx) error {
					tx.Touch(scope)
					return tx.Create(fmt.Sprintf("%s%d-%d", scope, i, n), nil, nil)
				}); err != nil {
					return err
				}
				created[i].Add(1)
				select {
				case wake <- struct{}{}:
				default:
				}
			}
			return nil
		})
	}
	for n := range 3 {
		runs := 0
		_, err := b.Update(b.ctx, func(tx store.Tx) error {
			runs++
			if err := tx.Observe(scope); err != nil {
				return err
			}
			kvs, err := tx.Range(scope, 0)
			if runs <= 3 {
				before, _ := progress()
				await(func() bool { now, _ := progress(); return now >= before+20 })
			}
			tx.Put(key("count"), fmt.Append(nil, len(kvs)), nil)
			return err
		})
		if err != nil || runs != 4 {
			t.Errorf("list %d: %v after %d runs, want 4", n, err, runs)
		}
		_, before := progress()
		await(func() bool { _, least := progress(); return least > before })
	}
	stop()
	if err := creators.Wait(); err != nil {
		t.Fatal(err)
	}
	if kvs, _, err := b.Range(b.ctx, store.Root+"claim/"); err != nil || len(kvs) > 0 {
		t.Errorf("claims left behind: %v, %v", kvs, err)
	}
}

// Of many that create one key, one succeeds; the others get the error that it exists.
func testCreateRace(t *testing.T, b *bench) {
	clients := []store.Store{b.open(), b.open(), b.open()}
	for round := range 5 {
		name := fmt.Sprintf("race/%d", round)
		var wins, losses atomic.Int64
		var winner atomic.Value
		var g errgroup.Group
		for i := range 9 {
			g.Go(func() error {
				_, err := clients[i%3].Update(b.ctx, func(tx store.Tx) error {
					return tx.Create(key(name), fmt.Append(nil, i), nil)
				})
				switch {
				case err == nil:
					wins.Add(1)
					winner.Store(strconv.Itoa(i))
				case errors.Is(err, model.ErrExists):
					losses.Add(1)
				default:
					return err
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if wins.Load() != 1 || losses.Load() != 8 {
			t.Errorf("%d created, %d refused, want 1 and 8", wins.Load(), losses.Load())
		}
		if got := b.value(name); got != winner.Load() {
			t.Errorf("the key has %s, %v was told it won", got, winner.Load())
		}
	}
}

// A write that requires a key created at a revision fails, once, when the key
// is gone or another; changes of its value do not matter.
func testFence(t *testing.T, b *bench) {
	create := b.put("lock", "me")
	b.put("lock", "me again")
	runs := 0
	write := func() error {
		_, err := b.Update(b.ctx, func(tx store.Tx) error {
			runs++
			tx.Require(key("lock"), create)
			tx.Put(key("fenced"), fmt.Append(nil, runs), nil)
			return nil
		})
		return err
	}
	if err := write(); err != nil {
		t.Errorf("while it holds: %v", err)
	}
	b.update(func(tx store.Tx) error { tx.Delete(key("lock")); return nil })
	for range 2 {
		if err := write(); !errors.Is(err, store.ErrFenced) || !errors.Is(err, model.ErrConflict) {
			t.Errorf("after it went: %v", err)
		}
		b.put("lock", "another")
	}
	if diff := cmp.Diff("1", b.value("fenced")); diff != "" || runs != 3 {
		t.Errorf("fenced writes ran %d times, want 3: %s", runs, diff)
	}
	one, other := b.put("one", "me"), b.put("other", "me")
	both := func() error {
		_, err := b.Update(b.ctx, func(tx store.Tx) error {
			tx.Require(key("one"), one)
			tx.Require(key("other"), other)
			tx.Put(key("fenced"), nil, nil)
			return nil
		})
		return err
	}
	if err := both(); err != nil {
		t.Errorf("while both hold: %v", err)
	}
	b.update(func(tx store.Tx) error { tx.Delete(key("one")); return nil })
	if err := both(); !errors.Is(err, store.ErrFenced) {
		t.Errorf("after one of two went: %v", err)
	}
}
