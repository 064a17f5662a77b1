package consul

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// With access control on, the token decides; without it, or with another, the error
// says what the token must be allowed to do.
func TestTokenDecidesWithAccessControl(t *testing.T) {
	addr := server(t, "-hcl", `acl { enabled = true default_policy = "deny" tokens { master = "11111111-2222-3333-4444-555555555555" } }`)
	with := func(token string) *Client {
		c := openWith(t, Config{Endpoints: []string{addr}, Token: fixed(token)})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	root := with("11111111-2222-3333-4444-555555555555")
	ready(t, root)
	policy, _, err := root.clients[0].ACL().PolicyCreate(&api.ACLPolicy{Name: "contiv", Rules: `key_prefix "contiv.io" { policy = "write" }`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := root.clients[0].ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(c *Client) error {
		_, err := c.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.Root+"x", []byte("1"), nil); return nil })
		return err
	}
	c := with(token.SecretID)
	if err := put(c); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if s, err := c.NewSession(t.Context(), time.Second); err != nil {
		t.Errorf("a session with the token: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := put(with("")); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "contiv.io") {
		t.Errorf("without a token: %v", err)
	}
	if _, err := with("99999999-2222-3333-4444-555555555555").Get(t.Context(), store.Root+"x"); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "does not know the token") {
		t.Errorf("with a token that Consul does not know: %v", err)
	}
	var now atomic.Value
	now.Store("99999999-2222-3333-4444-555555555555")
	exchanged := openWith(t, Config{Endpoints: []string{addr}, Token: func() string { return now.Load().(string) }})
	t.Cleanup(func() { _ = exchanged.Close() })
	if err := put(exchanged); err == nil {
		t.Error("a token that Consul does not know lets write")
	}
	if now.Store(token.SecretID); put(exchanged) != nil {
		t.Errorf("a token that was exchanged: %v", put(exchanged))
	}
}

// fixed shows a token that stays.
func fixed(token string) func() string { return func() string { return token } }
