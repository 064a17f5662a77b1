package consul

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/store"
)

// TestTooLargeTransactionsNameTheLimit: a transaction beyond Consul's configured limit fails with an error that
// says so and what to do, so that the caller can make it smaller; a smaller one is
// accepted.
func TestTooLargeTransactionsNameTheLimit(t *testing.T) {
	c := open(t, server(t, "-hcl", "limits { txn_max_req_len = 20000 kv_max_value_size = 9000 }"))
	defer func() { _ = c.Close() }()
	ready(t, c)
	write := func(values ...int) error {
		_, err := c.Update(t.Context(), func(tx store.Tx) error {
			for i, n := range values {
				tx.Put(store.Root+"x"+string(rune('0'+i)), []byte(strings.Repeat("x", n)), nil)
			}
			return nil
		})
		return err
	}
	for what, values := range map[string][]int{"a transaction": {8000, 8000}, "a value": {9500}} {
		if err := write(values...); !errors.Is(err, store.ErrTooLarge) || !strings.Contains(err.Error(), "raise them") || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s that is too large: %v", what, err)
		}
	}
	if err := write(8000); err != nil {
		t.Errorf("what is less: %v", err)
	}
}

// TestForbiddenMirrorIsAnError: a mirror whose client may read nothing gets an error that says so, and
// never an empty store.
func TestForbiddenMirrorIsAnError(t *testing.T) {
	const first = "11111111-2222-3333-4444-555555555555"
	addr := server(t, "-hcl", `acl { enabled = true default_policy = "deny" tokens { master = "`+first+`" } }`)
	root := openWith(t, Config{Endpoints: []string{addr}, Token: fixed(first)})
	defer func() { _ = root.Close() }()
	ready(t, root)
	if _, err := root.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.StoreIdentityKey, []byte("{}"), nil); return nil }); err != nil {
		t.Fatal(err)
	}
	agent := openWith(t, Config{Endpoints: []string{addr}, Agent: true})
	defer func() { _ = agent.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	said, done := make(chan error), make(chan struct{})
	tell := func(err error) error {
		select {
		case said <- err:
		case <-ctx.Done():
		}
		return nil
	}
	go func() {
		defer close(done)
		_ = agent.Mirror(ctx, []string{store.Root + "state/"}, func(store.Batch) error { return tell(nil) }, store.OnState(func(err error) { _ = tell(err) }))
	}()
	defer func() { stop(); <-done }()
	for range 4 {
		select {
		case err := <-said:
			if err == nil || !strings.Contains(err.Error(), "allow it to read keys") {
				t.Fatalf("it is told %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it is told nothing")
		}
	}
}

// TestRevokedRightsAreReported: a mirror of a store in which nothing happens says within seconds that
// its token may not read any more, and goes on when it may.
func TestRevokedRightsAreReported(t *testing.T) {
	const first = "11111111-2222-3333-4444-555555555555"
	addr := server(t, "-hcl", `acl { enabled = true default_policy = "deny" tokens { master = "`+first+`" } }`)
	root := openWith(t, Config{Endpoints: []string{addr}, Token: fixed(first)})
	defer func() { _ = root.Close() }()
	ready(t, root)
	if _, err := root.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.StoreIdentityKey, []byte("{}"), nil); return nil }); err != nil {
		t.Fatal(err)
	}
	acl := root.clients[0].ACL()
	policy := api.ACLPolicy{Name: "reads", Rules: `key_prefix "" { policy = "read" }`}
	may := func(rules string) {
		t.Helper()
		policy.Rules = rules
		if _, _, err := acl.PolicyUpdate(&policy, nil); err != nil {
			t.Fatal(err)
		}
	}
	made, _, err := acl.PolicyCreate(&policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	policy.ID = made.ID
	token, _, err := acl.TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: made.ID}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	agent := openWith(t, Config{Endpoints: []string{addr}, Token: fixed(token.SecretID), Agent: true})
	defer func() { _ = agent.Close() }()
	type state struct {
		of  int
		err error
	}
	said := make(chan state, 4096)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{}, 3)
	for i := range cap(done) { // as an agent has several
		go func() {
			_ = agent.Mirror(ctx, []string{store.Root + "state/"}, func(store.Batch) error { return nil }, store.OnState(func(err error) { said <- state{i, err} }))
			done <- struct{}{}
		}()
	}
	defer func() {
		stop()
		for range cap(done) {
			<-done
		}
	}()
	hears := func(what string, within time.Duration, is func(state) bool) {
		t.Helper()
		began := time.Now()
		for late := time.After(within); ; {
			select {
			case s := <-said:
				if is(s) {
					t.Logf("%s, after %s: %v", what, time.Since(began).Round(time.Millisecond), s.err)
					return
				}
			case <-late:
				t.Fatalf("%s: not within %s", what, within)
			}
		}
	}
	follows := func(s state) bool { return s.err == nil }
	for range cap(done) {
		hears("it follows", time.Minute, follows)
	}
	may(`key_prefix "" { policy = "deny" }`)
	refused := map[int]bool{}
	for len(refused) < cap(done) {
		hears("it may not read", 10*time.Second, func(s state) bool {
			if s.err == nil || !strings.Contains(s.err.Error(), "refuses the token") || refused[s.of] {
				return false
			}
			refused[s.of] = true
			return true
		})
	}
	may(`key_prefix "" { policy = "read" }`)
	hears("it follows again", time.Minute, follows)
}
