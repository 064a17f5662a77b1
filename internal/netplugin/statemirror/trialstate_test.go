package statemirror

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// rowsOf is all that a store has, by key.
func rowsOf(t *testing.T, st store.Store) map[string][]byte {
	t.Helper()
	kvs, _, err := st.Range(t.Context(), tables.StatePrefix)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, kv := range kvs {
		out[kv.Key] = kv.Value
	}
	return out
}

// pretend is a store as it would be with rows of Unconfirmed in place of its own, and without
// what says that there are Unconfirmed.
func pretend(t *testing.T, st *memory.Store, trials ...tables.Trial) *memory.Store {
	t.Helper()
	out := memory.New()
	put(t, out, func(tx store.Tx) error {
		rows := rowsOf(t, st)
		for _, tr := range trials {
			for _, r := range tr.Rows {
				if rows[r.Key] = r.Value; len(r.Value) == 0 {
					delete(rows, r.Key)
				}
			}
		}
		for k, v := range rows {
			ch, err := tables.Decode(store.Event{KV: store.KV{Key: k, Value: v, Create: 1, Mod: 1}})
			if err != nil {
				return err
			}
			if _, is := ch.Key.(tables.TrialKey); !is {
				tx.Put(k, v, nil)
			}
		}
		return nil
	})
	return out
}

// trialOf are the Unconfirmed that a change makes, one for each tenant; none when it writes
// what cannot be tried, or nothing.
func trialOf(t *testing.T, st *memory.Store, id string, change func(store.Tx) error) map[model.TenantName]tables.Trial {
	t.Helper()
	was, after := rowsOf(t, st), pretend(t, st)
	put(t, after, change)
	now := rowsOf(t, after)
	out := map[model.TenantName]tables.Trial{}
	add := func(key string, value []byte) bool {
		ch, err := tables.TrialRow{Key: key}.Change()
		if err == nil && ch.Key == nil { // no row of a table
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		tenant := model.TenantName("")
		switch k := ch.Key.(type) {
		case tables.GlobalKey:
		case model.NetworkKey:
			if tenant = k.Tenant; value == nil || was[key] == nil {
				return false
			}
		case model.PolicyKey:
			tenant = k.Tenant
		case model.RuleKey:
			tenant = k.Tenant
		case tables.TrialKey:
			return true
		default:
			return false
		}
		tr := out[tenant]
		tr.ID, tr.Tenant, tr.Within = id, tenant, time.Minute
		tr.Rows = append(tr.Rows, tables.TrialRow{Key: key, Value: value})
		out[tenant] = tr
		return true
	}
	for k, v := range now {
		if !bytes.Equal(v, was[k]) && !add(k, v) {
			return nil
		}
	}
	for k := range was {
		if now[k] == nil && !add(k, nil) {
			return nil
		}
	}
	return out
}

// again is an agent that begins on the host of h, at the present moment, and reaches no
// store; it has what h has written down.
func (h trialHost) again(t *testing.T, st *memory.Store) trialHost {
	t.Helper()
	until(t, h.State, "all is heard of", func() error {
		for p, m := range h.mirrors.byScope {
			rows := 0
			for _, prefix := range p.prefixes() {
				kvs, _, err := st.Range(t.Context(), prefix)
				if err != nil {
					return err
				}
				for _, kv := range kvs {
					ch, err := tables.Decode(store.Event{KV: kv})
					if err != nil || kv.Mod > m.changed {
						return fmt.Errorf("%s of %s is not heard of: %w", kv.Key, p, err)
					}
					if m.values[ch.Key] != nil {
						rows++
					}
				}
			}
			if rows != len(m.values) {
				return fmt.Errorf("%s: %d rows of %d", p, rows, len(m.values))
			}
		}
		return nil
	})
	h.mu.Lock()
	h.checkpoint.after = time.Time{}
	h.updateCheckpoint()
	dir := t.TempDir()
	for _, name := range []string{UnconfirmedFile, CheckpointFile, PositionFile} {
		data, err := os.ReadFile(filepath.Join(h.StateDir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	h.mu.Unlock()
	away := st.Client()
	away.Unavailable(true)
	x := newTrialHost(t, away, dir, "b1", time.Duration(h.now.Load()))
	x.Patience = -1
	x.mu.Lock()
	defer x.mu.Unlock()
	x.restoreCheckpoint()
	return x
}

// TestUnconfirmedChangesGiveTheStateOfTheirStore: while changes of settings, networks and policies are unconfirmed, the
// desired state is the one of a host whose store has them, whatever else comes and goes,
// also for objects that concern the host by them alone. After their deadline, or once they
// are reverted, it equals the one of a host that never saw them; once they are confirmed,
// it has them permanently. The same holds on a host whose agent restarts and reaches no
// store.
func TestUnconfirmedChangesGiveTheStateOfTheirStore(t *testing.T) {
	seeds := 8
	if testing.Short() {
		seeds = 2
	}
	kinds := map[string]int{}
	for seed := range seeds {
		x := &randomCluster{
			Rand: rand.New(rand.NewSource(int64(seed))), tenants: []model.TenantName{"default", "blue", "infra"},
			used: map[model.NetworkKey]bool{},
		}
		st := memory.New()
		put(t, st, func(tx store.Tx) error {
			return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()),
				tables.Hosts.Put(tx, model.Host{Name: "h1", VTEP: netip.MustParseAddr("10.9.0.1")}),
				tables.Hosts.Put(tx, model.Host{Name: "h2", VTEP: netip.MustParseAddr("10.9.0.2")}))
		})
		first := model.NetworkKey{Tenant: "blue", Name: "n1"}
		x.used[first] = true
		for range 60 {
			put(t, st, x.change)
		}
		h := newTrialHost(t, st.Client(), t.TempDir(), "b1", 0)
		h.Require(first)
		follow(t, h.State)
		same := func(what string, waits map[model.TenantName]tables.Trial, on bool) {
			t.Helper()
			until(t, h.State, fmt.Sprintf("seed %d, %s", seed, what), func() error {
				of := map[model.TenantName]bool{}
				for p, m := range h.mirrors.byScope {
					if !m.ready || m.staged {
						return fmt.Errorf("%s: not read", p)
					}
					if p.isTenant() {
						of[p.Tenant] = true
					}
				}
				if !h.Guard.follows() {
					return errors.New("no desired state yet")
				}
				var taken []tables.Trial
				known := 0
				for tenant, tr := range waits {
					if tenant != "" && !of[tenant] {
						continue
					}
					known++
					switch at := h.Unconfirmed.waiting[tables.TrialKey{Tenant: tenant, ID: tr.ID}]; {
					case at == nil:
						return fmt.Errorf("what is unconfirmed of tenant %q is not heard of", tenant)
					case at.on && !on, tenant == "" && !at.on && on:
						return fmt.Errorf("what is unconfirmed of tenant %q is taken: %v", tenant, at.on)
					case at.on:
						taken = append(taken, tr)
					}
				}
				if len(h.Unconfirmed.waiting) != known {
					return fmt.Errorf("%d changes wait, want %d", len(h.Unconfirmed.waiting), known)
				}
				var want desired.Host
				var problems []compile.Problem
				h.Endpoints.releaseRead()
				h.services.forgetClosed(0)
				want, problems = byTenants(t, pretend(t, st, taken...), of)
				if got, _ := h.comp.Compile(1); got.FwdMode != want.FwdMode {
					return fmt.Errorf("mode %v, want %v", got.FwdMode, want.FwdMode)
				}
				for k := range want.Networks.All() {
					if n, _ := want.Networks.Get(k); h.mirrors.endpoints(n.Key) == nil {
						return fmt.Errorf("network %s concerns this host and is not followed", n.Key)
					}
				}
				return h.sameState(want, problems)
			})
		}
		same("at first", nil, true)
		for step := range 10 {
			var waits map[model.TenantName]tables.Trial
			for len(waits) == 0 {
				waits = trialOf(t, st, fmt.Sprint("x", step), x.change)
			}
			for tenant := range waits {
				kinds[fmt.Sprint("of a tenant: ", tenant != "")]++
			}
			put(t, st, func(tx store.Tx) (err error) {
				for _, tr := range waits {
					err = errors.Join(err, tables.TrialsOf(tr.Tenant).Create(tx, tr))
				}
				return err
			})
			same("unconfirmed", waits, true)
			for range 3 {
				put(t, st, x.change)
			}
			if x.Intn(3) == 0 {
				k := x.network()
				x.used[k] = true
				h.Acquire(k)
			}
			same("while others change", waits, true)
			of, taken := map[model.TenantName]bool{}, []tables.Trial{}
			cut := h.again(t, st)
			for p := range cut.mirrors.byScope {
				of[p.Tenant] = of[p.Tenant] || p.isTenant()
			}
			delete(of, "")
			for tenant, tr := range waits {
				if at := cut.Unconfirmed.waiting[tables.TrialKey{Tenant: tenant, ID: tr.ID}]; at != nil && at.on {
					taken = append(taken, tr)
				}
			}
			is := func(what string, trials ...tables.Trial) {
				t.Helper()
				want, problems := byTenants(t, pretend(t, st, trials...), of)
				got, _ := cut.comp.Compile(1)
				if err := cut.sameState(want, problems); err != nil || got.FwdMode != want.FwdMode {
					t.Fatalf("seed %d, step %d, an agent that begins cut off, %s: mode %v, want %v: %v", seed, step, what, got.FwdMode, want.FwdMode, err)
				}
			}
			if len(taken) > 0 {
				is("unconfirmed", taken...)
				cut.pass(time.Minute)
				known := true // what came meanwhile, and concerns it by the old alone, it cannot know
				for p := range cut.interests.scopes() {
					m := cut.mirrors.byScope[p]
					known = known && m != nil && !m.staged && (p.isTenant() || len(m.values) > 0)
				}
				if known {
					is("after its time")
					kinds["cut off, and back"]++
				}
			}
			if x.Intn(2) == 0 {
				h.pass(time.Minute)
				same("after its time", waits, false)
				put(t, st, x.change)
				same("after its time, when others change", waits, false)
			}
			confirmed := x.Intn(2) == 0
			kinds[fmt.Sprint("confirmed: ", confirmed)]++
			put(t, st, func(tx store.Tx) error {
				for _, tr := range waits {
					tables.TrialsOf(tr.Tenant).Delete(tx, tables.TrialKey{Tenant: tr.Tenant, ID: tr.ID})
					for _, r := range tr.Rows {
						switch {
						case confirmed && len(r.Value) == 0:
							tx.Delete(r.Key)
						case confirmed:
							tx.Put(r.Key, r.Value, nil)
						}
					}
				}
				return nil
			})
			same(fmt.Sprint("over, confirmed: ", confirmed), nil, true)
		}
	}
	if len(kinds) != 5 || !testing.Short() && kinds["cut off, and back"] < 40 {
		t.Errorf("what was tried: %v", kinds)
	}
}
