package consul

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestDocumentedPoliciesSuffice: with access control on and the policies of docs/how-to/consul.md an
// agent reads and follows what agents read, sees nothing else, and writes nothing;
// netmaster does not leave its prefixes.
func TestDocumentedPoliciesSuffice(t *testing.T) {
	const first = "11111111-2222-3333-4444-555555555555"
	addr := server(t, "-hcl", `acl { enabled = true default_policy = "deny" tokens { master = "`+first+`" } }`)
	with := func(token string, reap bool) *Client {
		c := openWith(t, Config{Endpoints: []string{addr}, Token: fixed(token), Reap: reap, Agent: !reap})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	root := with(first, false)
	ready(t, root)
	page, err := os.ReadFile("../../../docs/how-to/consul.md")
	if err != nil {
		t.Fatal(err)
	}
	user := func(name string) *Client {
		t.Helper()
		_, rest, ok := strings.Cut(string(page), "cat >"+name+".hcl <<'E'\n")
		rules, _, end := strings.Cut(rest, "E\n")
		if !ok || !end {
			t.Fatalf("the page has no rules of %s", name)
		}
		p, _, err := root.clients[0].ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, _, err := root.clients[0].ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: p.ID}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return with(token.SecretID, name == "contiv-netmaster")
	}
	master, agent := user("contiv-netmaster"), user("contiv-host")
	const state, secret = store.Root + "state/x", store.Root + "access/tokens/x"
	write := func(c *Client, value string, keys ...string) error {
		_, err := c.Update(t.Context(), func(tx store.Tx) error {
			for _, k := range keys {
				tx.Put(k, []byte(value), nil)
			}
			return nil
		})
		return err
	}
	// An agent comes after the first netmaster, who gave the store its identity: of a key
	// that is missing Consul tells only who may write it.
	if err := write(master, "1", state, secret, store.StoreIdentityKey); err != nil {
		t.Fatal(err)
	}
	if s, err := master.NewSession(t.Context(), time.Second); err != nil {
		t.Errorf("a session of netmaster: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	seen := make(chan string, 16)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = agent.Mirror(ctx, []string{store.Root + "state/"}, func(b store.Batch) error {
			if b.Listed {
				seen <- "all anew"
			}
			for _, e := range b.Events {
				if e.KV.Key == state {
					seen <- string(e.KV.Value)
				}
			}
			return nil
		})
	}()
	t.Cleanup(func() { stop(); <-done })
	sees := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("an agent is told %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("an agent is never told %s", want)
		}
	}
	sees("all anew")
	sees("1")
	if err := write(master, "2", state, secret); err != nil {
		t.Fatal(err)
	}
	sees("2")
	if kv, err := agent.Get(t.Context(), state); err != nil || string(kv.Value) != "2" {
		t.Errorf("an agent reads %q, %v", kv.Value, err)
	}
	// A deleted key is reported without listing all, also if its name is a prefix of
	// another's.
	if err := write(master, "7", state+"y"); err != nil {
		t.Fatal(err)
	}
	if _, err := master.Update(t.Context(), func(tx store.Tx) error { tx.Delete(state); return nil }); err != nil {
		t.Fatal(err)
	}
	sees("")
	if kv, err := agent.Get(t.Context(), state); err != nil || kv.Exists() {
		t.Errorf("an agent reads %q of what is gone, %v", kv.Value, err)
	}
	if err := write(master, "2", state); err != nil {
		t.Fatal(err)
	}
	sees("2")
	if kv, err := agent.Get(t.Context(), secret); err == nil && kv.Exists() {
		t.Errorf("an agent reads the token %q", kv.Value)
	}
	for _, key := range []string{"", consulKey(store.Root), ownPrefix} {
		all, _, err := agent.clients[0].KV().List(key, nil)
		for _, p := range all {
			if err == nil && p.Key == consulKey(secret) {
				t.Errorf("an agent lists %q, which has %s", key, p.Key)
			}
		}
	}
	for who, c := range map[string]*Client{"netmaster": master, "an agent": agent} { // of a slot that is empty
		if older, err := c.Older(t.Context(), "4000.x"); err != nil || !older {
			t.Errorf("whether the store went back is told to %s as %t, %v", who, older, err)
		}
	}
	denied := func(c *Client) bool { return slices.Contains(c.Servers(t.Context())[0].Alarms, model.AlarmDenied) }
	if _, err := agent.NewSession(t.Context(), time.Second); err == nil || !denied(agent) { // as a netmaster that enters the registry does
		t.Errorf("who only reads takes a lease: %v; denied: %t", err, denied(agent))
	}
	if err := write(agent, "3", state); err == nil || !strings.Contains(err.Error(), "to read keys that begin with contiv.io/oper/") || !denied(agent) || denied(master) {
		t.Errorf("an agent that writes is told %v; denied: %t, netmaster: %t", err, denied(agent), denied(master))
	}
	for _, key := range []string{state, secret, store.Root + "service/x", store.Root + "oper/x", store.Root + "lock"} {
		if err := write(agent, "3", key); err == nil {
			t.Errorf("an agent writes %s", key)
		}
		if _, err := agent.clients[0].KV().Put(&api.KVPair{Key: consulKey(key)}, nil); err == nil {
			t.Errorf("an agent writes %s by itself", key)
		}
	}
	if _, err := agent.clients[0].KV().DeleteTree(consulKey(store.Root), nil); err == nil {
		t.Error("an agent deletes all")
	}
	for who, c := range map[string]*Client{"netmaster": master, "an agent": agent} {
		if _, err := c.clients[0].KV().Put(&api.KVPair{Key: "other/x"}, nil); err == nil {
			t.Errorf("%s writes elsewhere", who)
		}
		if _, _, err := c.clients[0].ACL().TokenCreate(&api.ACLToken{}, nil); err == nil {
			t.Errorf("%s makes a token", who)
		}
	}
	if kv, err := master.Get(t.Context(), state); err != nil || string(kv.Value) != "2" {
		t.Errorf("it is %q, %v", kv.Value, err)
	}
}
