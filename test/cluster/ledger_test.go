package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// holding is that somebody knows to have an address: from the answer that gave it
// until anybody asks for its end.
type holding struct {
	who        string
	from, till int64 // in the history's time
}

// holdings finds in a history who had which address, by network and address.
func holdings(objects []object, history []porcupine.Operation) map[string][]holding {
	ends := map[int][]porcupine.Operation{}
	for _, o := range history {
		if in := o.Input.(asked); in.method == http.MethodDelete {
			ends[in.object] = append(ends[in.object], o)
		}
	}
	out := map[string][]holding{}
	for _, o := range history {
		in, is := o.Input.(asked), o.Output.(got)
		if !objects[in.object].plugin || in.method != http.MethodPut || is.outcome != done {
			continue
		}
		h := holding{who: objects[in.object].id(), from: o.Return, till: 1 << 62}
		for _, e := range ends[in.object] {
			if e.Return > o.Call {
				h.till = min(h.till, e.Call)
			}
		}
		if h.till > h.from {
			v := is.value
			a := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
			network := h.who[:strings.LastIndexByte(h.who, ':')]
			out[network+" "+a.String()] = append(out[network+" "+a.String()], h)
		}
	}
	return out
}

// twice returns what several had at a time.
func twice(held map[string][]holding) (out []string) {
	for what, list := range held {
		slices.SortFunc(list, func(a, b holding) int { return int(a.from - b.from) })
		for i, h := range list {
			for _, other := range list[:i] {
				if other.who != h.who && other.till > h.from {
					out = append(out, fmt.Sprintf("%s is given to %s while %s has it", what, h.who, other.who))
				}
			}
		}
	}
	return out
}

// ledger follows the store's rows, and judges them after each of its transactions.
type ledger struct {
	mu       sync.Mutex
	rows     map[string]any    // by key in the store
	owner    map[string]string // the key of who has an address, tag, number, or an identity's number
	users    map[model.Identity]int
	wrong    []string
	revision store.Revision
	given    int // how often something was
}

func newLedger() *ledger {
	return &ledger{rows: map[string]any{}, owner: map[string]string{}, users: map[model.Identity]int{}}
}

// follow follows a store until ctx ends.
func (l *ledger) follow(ctx context.Context, st store.Reader) error {
	err := st.Mirror(ctx, []string{tables.StatePrefix}, l.enter, store.FollowCommits())
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end is why it failed
	}
	return err
}

// has are what a row has, that no other may have, and identities that it uses.
func has(row any) (own []string, uses []model.Identity) {
	switch r := row.(type) {
	case model.Endpoint:
		for _, a := range []netip.Addr{r.IPv4, r.IPv6} {
			if a.IsValid() {
				own = append(own, fmt.Sprintf("address %s of %s", a, r.Key.Network))
			}
		}
		return append(own, fmt.Sprintf("MAC %s of %s", r.MAC, r.Key.Network)), []model.Identity{r.Identity}
	case model.Network:
		return []string{fmt.Sprintf("%s tag %d", r.Encap, r.Tag), fmt.Sprintf("network id %d", r.ID)}, []model.Identity{r.Identity}
	case model.Tenant:
		if r.Router != 0 {
			own = append(own, fmt.Sprintf("router %d", r.Router))
		}
	case model.Group:
		return nil, []model.Identity{r.ID}
	case model.IdentityRecord:
		own = append(own, fmt.Sprintf("identity %d", r.ID))
	case tables.Interned:
		own = append(own, fmt.Sprintf("contents of identity %d", r.ID))
	}
	return own, uses
}

// enter takes in a transaction.
func (l *ledger) enter(b store.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = b.Revision
	var came []string
	var changed []model.Identity
	for _, e := range b.Events { // first all that goes: what one row gives up another may take
		key := e.KV.Key
		own, uses := has(l.rows[key])
		for _, x := range own {
			delete(l.owner, x)
		}
		for _, id := range uses {
			l.users[id]--
		}
		delete(l.rows, key)
		ch, err := tables.Decode(e)
		switch {
		case err != nil:
			l.wrong = append(l.wrong, fmt.Sprintf("revision %d: %s cannot be read: %v", b.Revision, key, err))
		case e.Deleted():
			changed = append(changed, uses...)
			if id, ok := ch.Key.(tables.IdentityKey); ok {
				changed = append(changed, id.ID)
			}
		case ch.Value != nil:
			l.rows[key] = ch.Value
			came = append(came, key)
		}
	}
	for _, key := range came {
		own, uses := has(l.rows[key])
		for _, x := range own {
			if who, ok := l.owner[x]; ok {
				l.wrong = append(l.wrong, fmt.Sprintf("revision %d: %s is given to %s while %s has it", b.Revision, x, key, who))
			}
			l.owner[x] = key
			l.given++
		}
		for _, id := range uses {
			l.users[id]++
		}
		changed = append(changed, uses...)
	}
	for _, id := range changed {
		if l.users[id] > 0 && l.owner[fmt.Sprintf("identity %d", id)] == "" {
			l.wrong = append(l.wrong, fmt.Sprintf("revision %d: identity %d is used, and nobody knows what it is", b.Revision, id))
		}
	}
	return nil
}

// verdict is what was found, at most a few, and how much was given.
func (l *ledger) verdict() (wrong []string, given int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrong[:min(len(l.wrong), 10)], l.given
}

// reached reports whether all commits until a revision are in.
func (l *ledger) reached(rev store.Revision) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision >= rev
}

// TestClientsHaveAddressesOnce: what clients have at a time, and what they may have.
func TestClientsHaveAddressesOnce(t *testing.T) {
	var quiet *kind
	for _, k := range kinds {
		if k.plugin {
			quiet = k
			break
		}
	}
	objects := []object{{quiet, 0, 0}, {quiet, 1, 0}}
	op := func(object int, method string, from, till int64) porcupine.Operation {
		return porcupine.Operation{Input: asked{object: object, method: method}, Output: got{done, 10<<24 | 7, 0}, Call: from, Return: till}
	}
	put, del := http.MethodPut, http.MethodDelete
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    int
	}{
		"both have it":                       {[]porcupine.Operation{op(0, put, 1, 2), op(1, put, 3, 4)}, 1},
		"one after the other":                {[]porcupine.Operation{op(0, put, 1, 2), op(0, del, 3, 4), op(1, put, 5, 6)}, 0},
		"as soon as the end is asked for":    {[]porcupine.Operation{op(0, put, 1, 2), op(0, del, 3, 9), op(1, put, 4, 5)}, 0},
		"the end is asked for too late":      {[]porcupine.Operation{op(0, put, 1, 2), op(1, put, 3, 4), op(0, del, 5, 6)}, 1},
		"the end may have come at once":      {[]porcupine.Operation{op(0, put, 1, 4), op(0, del, 2, 1<<62), op(1, put, 5, 6)}, 0},
		"the end of it came before":          {[]porcupine.Operation{op(0, del, 0, 1), op(0, put, 2, 3), op(1, put, 4, 5)}, 1},
		"the same is answered the same once": {[]porcupine.Operation{op(0, put, 1, 2), op(0, put, 3, 4)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if found := twice(holdings(objects, c.history)); len(found) != c.want {
				t.Errorf("%q, want %d", found, c.want)
			}
		})
	}
}
