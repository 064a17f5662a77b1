package consul

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// What 'consul snapshot restore' puts back is not seen in Consul's index, which goes on:
// with the next commits it is higher than ever. The journal tells: a commit that was known
// has to be where it was.

// place is what store.Batch calls so: an entry's number and ID.
func (e entry) place() string { return fmt.Sprintf("%d.%s", e.N, e.ID) }

// parsePlace undoes place; an empty one means a store without commits, the ancestor of all.
func parsePlace(s string) entry {
	n, id, _ := strings.Cut(s, ".")
	number, err := strconv.ParseUint(n, 10, 64)
	if err != nil || id == "" {
		return entry{}
	}
	return entry{N: number, ID: id}
}

// slot is where a commit that is known stands in the journal, to be read as what is under a
// prefix: of a key that is missing Consul tells only who may write it.
func (e entry) slot() []string {
	if e.N == 0 {
		return nil
	}
	return []string{slotKey(e.N)}
}

// isMissing reports whether a commit is missing in the history of a view that was read with the
// commit's slot. When the ring has gone round since, this is unknown, and it returns false.
func (v view) isMissing(known entry) bool {
	switch {
	case known.N == 0:
		return false
	case v.head.N <= known.N: // a number is given once in a history
		return v.head.ID != known.ID
	case v.head.N-known.N >= slots:
		return false
	}
	p := v.pairs[slotKey(known.N)]
	if p == nil {
		return false
	}
	e, err := parseEntry(p)
	return err == nil && e.ID != known.ID
}

// Older implements store.Historian.
func (c *Client) Older(ctx context.Context, place string) (bool, error) {
	known := parsePlace(place)
	v, err := c.read(ctx, nil, known.slot())
	return err == nil && v.isMissing(known), err
}
