package consul

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// slots is how many commits the journal keeps: a mirror that is further behind
// lists again.
const slots = 4096

// entry is what the journal says of a commit. The newest is the value of the commit
// key, where mirrors wait; all stand in their slots.
type entry struct {
	N     uint64   `json:"n"`               // counts commits from 1; 0 = there was none yet
	ID    string   `json:"id"`              // of this commit; two histories of a store differ by it
	Prev  string   `json:"prev,omitempty"`  // ID of the one before
	Keys  []string `json:"keys,omitempty"`  // written or deleted; Consul's
	Trees []string `json:"trees,omitempty"` // prefixes deleted
	mod   store.Revision
}

func slotKey(n uint64) string { return fmt.Sprintf("%sjournal/%04x", ownPrefix, n%slots) }

// touches reports whether a commit may have changed a key.
func (e entry) touches(key string) bool {
	return slices.Contains(e.Keys, key) || slices.ContainsFunc(e.Trees, func(t string) bool { return strings.HasPrefix(key, t) })
}

// after makes the entry that follows.
func (e entry) after() entry { return entry{N: e.N + 1, ID: uuid.NewString(), Prev: e.ID} }

// parseHead reads the commit key; nil = it is missing.
func parseHead(p *api.KVPair) (entry, error) {
	if p == nil {
		return entry{}, nil
	}
	return parseEntry(p)
}

func parseEntry(p *api.KVPair) (entry, error) {
	var e entry
	if err := json.Unmarshal(p.Value, &e); err != nil || e.ID == "" {
		return e, model.Errorf(model.ErrUnavailable, "Consul's key %s is not an entry of Contiv's journal: another program may have written it", p.Key)
	}
	e.mod = store.Revision(p.ModifyIndex)
	return e, nil
}

// since returns the commits after one up to another, in their order; not whole when
// they are not all there any more, or one does not descend from the other.
func (c *Client) since(ctx context.Context, from, to entry) (passed []entry, whole bool, err error) {
	if from.ID == to.ID {
		return nil, true, nil
	}
	if to.N <= from.N || to.N-from.N > slots/2 {
		return nil, false, nil
	}
	var keys []string
	for n := from.N + 1; n < to.N; n++ {
		keys = append(keys, slotKey(n))
	}
	last := from
	for chunk := range slices.Chunk(keys, maxOps-1) {
		v, err := c.read(ctx, chunk, nil)
		if err != nil {
			return nil, false, err
		}
		for _, key := range chunk {
			p := v.pairs[key]
			if p == nil {
				return nil, false, nil
			}
			e, err := parseEntry(p)
			if err != nil {
				return nil, false, err
			}
			if e.N != last.N+1 || e.Prev != last.ID {
				return nil, false, nil
			}
			passed, last = append(passed, e), e
		}
	}
	return append(passed, to), to.Prev == last.ID, nil
}
