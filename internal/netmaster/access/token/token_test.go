package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var viewer = access.Grant{Role: access.Viewer}

// clock is the time of a test.
type clock struct{ now time.Time }

func newStore(t *testing.T, mem *memory.Store) (*Store, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	s := NewStore(mem)
	s.patience = 3 * time.Minute
	s.now = func() time.Time { return c.now }
	return s, c
}

func memoryStore(t *testing.T) *memory.Store {
	t.Helper()
	mem := memory.New()
	t.Cleanup(func() {
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	setTenant(t, mem, "blue", true)
	setTenant(t, mem, "red", true)
	return mem
}

func setTenant(t *testing.T, mem *memory.Store, name model.TenantName, is bool) {
	t.Helper()
	_, err := mem.Update(t.Context(), func(tx store.Tx) error {
		if !is {
			tables.Tenants.Delete(tx, name)
			return nil
		}
		return tables.Tenants.Create(tx, model.Tenant{Name: name})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTokenIsForTheTenantThatWas: no token is made for a tenant that does not exist, and one
// for a tenant that was deleted rules no other that comes later under its name.
func TestTokenIsForTheTenantThatWas(t *testing.T) {
	mem := memoryStore(t)
	s, _ := newStore(t, mem)
	make := func(tenants ...string) (string, error) {
		secret, _, err := s.Create(t.Context(), TokenRequest{Name: "anna", Grant: access.Grant{Role: access.TenantAdmin, Tenants: tenants}, Life: time.Hour})
		return secret, err
	}
	if _, err := make("blue", "green"); !errors.Is(err, model.ErrNotFound) || !strings.Contains(err.Error(), "green") {
		t.Errorf("a token for a tenant that does not exist: %v", err)
	}
	one, err := make("red")
	if err != nil {
		t.Fatal(err)
	}
	two, err := make("red", "blue")
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range []bool{false, true} {
		setTenant(t, mem, "red", is)
		if _, err := s.Identify(t.Context(), one); refused(err) != http.StatusUnauthorized {
			t.Errorf("red exists again: %v; its former token: %v", is, err)
		}
		id, err := s.Identify(t.Context(), two)
		if err != nil || !slices.Equal(id.Grants[0].Tenants, []string{"blue"}) {
			t.Errorf("red exists again: %v; the token for two tenants: %+v, %v", is, id, err)
		}
	}
}

// refused tells a refusal's status; 0 = there is none.
func refused(err error) int {
	if no, is := errors.AsType[*httpguard.Refusal](err); is {
		return no.Status
	}
	return 0
}

// TestListMarksTenantsThatWereDeleted: a list tells for which of its tenants a token is
// good no more.
func TestListMarksTenantsThatWereDeleted(t *testing.T) {
	mem := memoryStore(t)
	s, _ := newStore(t, mem)
	if _, _, err := s.Create(t.Context(), TokenRequest{Name: "anna", Grant: access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue", "red"}}, Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	gone := func() []string {
		t.Helper()
		all, err := s.List(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].Gone
	}
	if got := gone(); got != nil {
		t.Errorf("gone while all are there: %q", got)
	}
	setTenant(t, mem, "blue", false)
	if diff := cmp.Diff([]string{"blue"}, gone()); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
	setTenant(t, mem, "blue", true) // another one of the name
	if diff := cmp.Diff([]string{"blue"}, gone()); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
}

// TestTokenIsValidUntilItExpires: a token is what was asked for until it is over, at every netmaster and
// after a restart of all; what the store has of it is no secret.
func TestTokenIsValidUntilItExpires(t *testing.T) {
	mem := memoryStore(t)
	s, c := newStore(t, mem)
	grant := access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue", "red"}}
	secret, made, err := s.Create(t.Context(), TokenRequest{Name: "anna", Grant: grant, Life: time.Hour, By: "root"})
	if err != nil {
		t.Fatal(err)
	}
	want := access.Identity{Name: "anna", How: access.ByToken, ID: string(made.ID), Grants: []access.Grant{{Role: access.TenantAdmin, Tenants: []string{"blue", "red"}}}}
	other, oc := newStore(t, mem)
	for _, at := range []*Store{s, other} {
		got, err := at.Identify(t.Context(), secret)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Error(d, err)
		}
	}
	list, err := other.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if d := cmp.Diff(Record{ID: made.ID, Name: "anna", Grant: want.Grants[0], Created: c.now, By: "root", Expires: c.now.Add(time.Hour)}, list[0]); d != "" {
		t.Error(d)
	}
	kvs, _, err := mem.Range(t.Context(), store.Root)
	if err != nil || len(kvs) == 0 {
		t.Fatal(kvs, err)
	}
	half := secret[len(Prefix)+idLen+1:]
	for _, kv := range kvs {
		if bytes.Contains(kv.Value, []byte(half)) || strings.Contains(kv.Key, half) {
			t.Errorf("%s holds the secret", kv.Key)
		}
	}
	c.now = c.now.Add(time.Hour - time.Nanosecond)
	if _, err := s.Identify(t.Context(), secret); err != nil {
		t.Error(err)
	}
	c.now = c.now.Add(time.Nanosecond)
	if got, err := s.Identify(t.Context(), secret); refused(err) != http.StatusUnauthorized || !strings.Contains(err.Error(), "is over since 2026-05-01T13:00:00Z") || got.Grants != nil || got.ID != string(made.ID) {
		t.Errorf("when it is over: %+v, %v", got, err)
	}
	if err := other.Revoke(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	c.now = oc.now
	if _, err := s.Identify(t.Context(), secret); refused(err) != http.StatusUnauthorized || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("revoked by another: %v", err)
	}
	if err := s.Revoke(t.Context(), made.ID); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

// TestOnlyGrantedTokensAreLetIn: whatever is made, revoked and comes to its end, at two netmasters,
// just those are let in that a list of what was granted says.
func TestOnlyGrantedTokensAreLetIn(t *testing.T) {
	type granted struct {
		id      ID
		secret  string
		grant   access.Grant
		ends    time.Time
		revoked bool
	}
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 7))
		mem := memoryStore(t)
		a, c := newStore(t, mem)
		b, _ := newStore(t, mem)
		b.now = a.now
		stores := []*Store{a, b}
		roles := []access.Grant{viewer, {Role: access.ClusterAdmin}, {Role: access.TenantAdmin, Tenants: []string{"blue"}}, {Role: access.TenantAdmin, Tenants: []string{"red", "blue"}}}
		var all []*granted
		lets, refuses := 0, 0
		for range 120 {
			at := stores[rng.IntN(2)]
			switch n := rng.IntN(10); {
			case n < 4:
				life := time.Duration(1+rng.IntN(100)) * time.Minute
				g := &granted{grant: roles[rng.IntN(len(roles))], ends: c.now.Add(life)}
				secret, r, err := at.Create(t.Context(), TokenRequest{Name: "x", Grant: g.grant, Life: life})
				if err != nil {
					t.Fatal(err)
				}
				g.id, g.secret = r.ID, secret
				all = append(all, g)
			case n < 6 && len(all) > 0:
				g := all[rng.IntN(len(all))]
				if err := at.Revoke(t.Context(), g.id); (err == nil) == g.revoked {
					t.Fatalf("revoke %s (revoked before: %v): %v", g.id, g.revoked, err)
				}
				g.revoked = true
			default:
				c.now = c.now.Add(time.Duration(rng.IntN(10)) * time.Minute)
			}
			var want []ID
			for _, g := range all {
				good := !g.revoked && c.now.Before(g.ends)
				id, err := stores[rng.IntN(2)].Identify(t.Context(), g.secret)
				if (err == nil) != good || good && cmp.Diff([]access.Grant{g.grant}, id.Grants) != "" || !good && (id.Grants != nil || refused(err) != 401) {
					t.Fatalf("seed %d: token %s (good: %v): %+v, %v", seed, g.id, good, id, err)
				}
				if good {
					lets++
				} else {
					refuses++
				}
				if !g.revoked {
					want = append(want, g.id)
				}
			}
			slices.Sort(want)
			list, err := at.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []ID
			for _, r := range list {
				got = append(got, r.ID)
			}
			if !slices.Equal(want, got) {
				t.Fatalf("seed %d: listed %v, want %v", seed, got, want)
			}
		}
		if lets < 100 || refuses < 100 {
			t.Errorf("seed %d: %d let in, %d refused: this tests little", seed, lets, refuses)
		}
	}
}

// TestTokenWithOneLetterChangedIsRefused: a token with any one letter changed is none.
func TestTokenWithOneLetterChangedIsRefused(t *testing.T) {
	s, _ := newStore(t, memoryStore(t))
	secret, _, err := s.Create(t.Context(), TokenRequest{Name: "x", Grant: viewer, Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	try := []string{"", secret + "A", secret[1:], secret[:len(secret)-1], strings.ToLower(secret), secret + "\n", " " + secret, Prefix, strings.Repeat("A", 1<<20)}
	for i := range secret {
		for _, c := range "AB7-a\x00" {
			if changed := secret[:i] + string(c) + secret[i+1:]; changed != secret {
				try = append(try, changed)
			}
		}
	}
	for _, shown := range try {
		if id, err := s.Identify(t.Context(), shown); refused(err) != 401 || id.Grants != nil || len(shown) > 20 && strings.Contains(err.Error(), shown[20:]) {
			t.Errorf("%.60q: %+v, %v", shown, id, err)
		}
	}
	if _, err := s.Identify(t.Context(), secret); err != nil {
		t.Error(err)
	}
}

// netctl and netplugin read a token from --token-file: one of these fits there.
func TestTokensAreValidInTokenFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	secret := newText().String()
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := transport.OpenTokens(path)
	if err != nil || f.Show() != secret {
		t.Errorf("%v", err)
	}
}

func TestBadTokenRequestsAreRefused(t *testing.T) {
	s, _ := newStore(t, memoryStore(t))
	good := TokenRequest{Name: "x", Grant: viewer, Life: time.Hour}
	for field, spoil := range map[string]func(*TokenRequest){
		"name":                     func(w *TokenRequest) { w.Name = "" },
		"1 to 64 printable":        func(w *TokenRequest) { w.Name = strings.Repeat("x", 65) },
		"printable bytes":          func(w *TokenRequest) { w.Name = "a\nb" },
		"from a second":            func(w *TokenRequest) { w.Life = 0 },
		"to 366 days":              func(w *TokenRequest) { w.Life = MaxLife + 1 },
		"role":                     func(w *TokenRequest) { w.Grant.Role = "" },
		"must be cluster-admin":    func(w *TokenRequest) { w.Grant.Role = access.Host },
		"or viewer":                func(w *TokenRequest) { w.Grant.Role = access.Netmaster },
		"tenants: must be 1":       func(w *TokenRequest) { w.Grant.Role = access.TenantAdmin },
		"tenants: must be omitted": func(w *TokenRequest) { w.Grant.Tenants = []string{"a"} },
	} {
		w := good
		spoil(&w)
		if _, _, err := s.Create(t.Context(), w); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
		t.Error(list, err)
	}
	for _, w := range []TokenRequest{{strings.Repeat("x", maxName), viewer, time.Second, ""}, {"x", viewer, MaxLife, ""}} {
		if _, _, err := s.Create(t.Context(), w); err != nil {
			t.Errorf("a name of %d bytes for %v: %v", len(w.Name), w.Life, err)
		}
	}
}

func TestIDsOfTokens(t *testing.T) {
	for text, want := range map[string]bool{"ABCDEFGH27": true, "ABCDEFGH2": false, "ABCDEFGH277": false, "ABCDEFGH21": false, "aBCDEFGH27": false, "": false} {
		if id, err := ParseID(text); (err == nil) != want || want != (id == ID(text) && text != "") {
			t.Errorf("%q: %q, %v, want %v", text, id, err, want)
		}
	}
}

// TestExpiredTokensMakeRoom: there are at most MaxTokens; long expired ones make room for new ones.
func TestExpiredTokensMakeRoom(t *testing.T) {
	mem := memoryStore(t)
	s, c := newStore(t, mem)
	for i := range MaxTokens {
		r := Record{ID: ID(strings.Map(func(r rune) rune { return r - '0' + 'A' }, fmt.Sprintf("%010d", i))), Name: "x", Grant: viewer, Expires: c.now.Add(time.Duration(i) * time.Second), Hash: make([]byte, 32)}
		if _, err := mem.Update(t.Context(), func(tx store.Tx) error { return records.Create(tx, r) }); err != nil {
			t.Fatal(err)
		}
	}
	wish := TokenRequest{Name: "y", Grant: viewer, Life: time.Hour}
	c.now = c.now.Add(expiredRetention)
	if _, _, err := s.Create(t.Context(), wish); !errors.Is(err, model.ErrExhausted) {
		t.Errorf("one too many: %v", err)
	}
	c.now = c.now.Add(time.Minute)
	for range 2 {
		if _, _, err := s.Create(t.Context(), wish); err != nil {
			t.Error(err)
		}
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != MaxTokens-2*deletesPerTransaction+2 {
		t.Errorf("%d tokens, %v", len(list), err)
	}
}

// TestTokensGiveNoAccessWithoutTheStore: a token that cannot be looked up gives no access, and the error says why.
func TestTokensGiveNoAccessWithoutTheStore(t *testing.T) {
	mem := memoryStore(t)
	s, _ := newStore(t, mem)
	secret, made, err := s.Create(t.Context(), TokenRequest{Name: "x", Grant: viewer, Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	mem.Unavailable(true)
	if id, err := s.Identify(t.Context(), secret); refused(err) != 503 || id.Grants != nil {
		t.Errorf("%+v, %v", id, err)
	}
	if _, err := s.Identify(t.Context(), "contiv-rubbish"); refused(err) != 401 {
		t.Errorf("what is no token needs no store: %v", err)
	}
	mem.Unavailable(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Identify(ctx, secret); refused(err) != 503 {
		t.Errorf("a request that has ended: %v", err)
	}
	s.store, s.patience = hangingStore{mem}, time.Millisecond
	if _, err := s.Identify(t.Context(), secret); refused(err) != 503 {
		t.Errorf("a store that says nothing: %v", err)
	}
	s.store, s.patience = mem, 3*time.Minute
	whole, err := mem.Get(t.Context(), records.Key(made.ID))
	if err != nil {
		t.Fatal(err)
	}
	row, err := records.Decode(whole)
	if err != nil {
		t.Fatal(err)
	}
	short, none := row.Value, row.Value
	short.Hash, none.Hash = short.Hash[:31], nil
	for what, spoilt := range map[string][]byte{
		"of a later version": encode(t, 2, row.Value), "with half a hash": encode(t, 1, short), "without a hash": encode(t, 1, none), "of rubbish": []byte("rubbish"),
	} {
		put(t, mem, records.Key(made.ID), spoilt)
		id, err := s.Identify(t.Context(), secret)
		if err == nil || id.Grants != nil {
			t.Errorf("a record %s: %+v", what, id)
		}
		if what == "of rubbish" {
			if _, unread := s.List(t.Context()); refused(err) != 0 || unread == nil {
				t.Errorf("a record %s is called a wrong token: %v; or is left out of a list: %v", what, err, unread)
			}
		}
	}
	put(t, mem, records.Key(made.ID), encode(t, 1, row.Value))
	if _, err := s.Identify(t.Context(), secret); err != nil {
		t.Error(err)
	}
}

// hangingStore is a store that takes a question and says nothing.
type hangingStore struct{ store.Store }

func (hangingStore) Get(ctx context.Context, _ string) (store.KV, error) {
	<-ctx.Done()
	return store.KV{}, ctx.Err()
}

func encode(t *testing.T, version int, r Record) []byte {
	t.Helper()
	b, err := store.EncodeRecord(version, r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, s store.Store, key string, value []byte) {
	t.Helper()
	if _, err := s.Update(t.Context(), func(tx store.Tx) error {
		tx.Put(key, value, nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// FuzzParse: a text is a token just if it is what String makes of what was read.
func FuzzParse(f *testing.F) {
	f.Add(newText().String())
	f.Add(Prefix + "ABCDEFGHIJ-" + strings.Repeat("7", secretLen))
	f.Add("contiv-")
	f.Add(Prefix + "abc/EFGHIJ-" + strings.Repeat("7", secretLen))
	f.Add("")
	f.Fuzz(func(t *testing.T, shown string) {
		got, err := parse(shown)
		if err != nil {
			if got != (text{}) {
				t.Errorf("%q: %v with %v", shown, got, err)
			}
			return
		}
		if got.String() != shown || !Is(shown) {
			t.Errorf("%q is read as %q", shown, got.String())
		}
		if id, err := ParseID(string(got.id)); err != nil || id != got.id {
			t.Errorf("%q: its id %q is none", shown, got.id)
		}
	})
}
