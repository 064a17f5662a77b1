package reachability

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// differenceKey is what differences have in common that can be one, beside their endpoints.
type differenceKey struct {
	why
	v6       bool
	outside  model.Direction // In = from prefixes, Out = to prefixes; "" = between endpoints
	ports    string
	prefixes string
}

// table collects differences.
type table struct {
	cells map[differenceKey]*cell
	order []*cell
}

// cell has all between whom a piece is the difference.
type cell struct {
	key      differenceKey
	piece    piece
	prefixes []netip.Prefix
	froms    []*class
	to       map[*class][]*class // by from; none of a cell with prefixes
}

func (t *table) cell(k differenceKey, p piece, prefixes []netip.Prefix) *cell {
	k.why, k.ports, k.prefixes = p.why(), fmt.Sprint(p.ports.spans), fmt.Sprint(prefixes)
	c := t.cells[k]
	if c == nil {
		c = &cell{key: k, piece: p, prefixes: prefixes, to: map[*class][]*class{}}
		t.cells[k], t.order = c, append(t.order, c)
	}
	return c
}

// add enters that the cell's piece is the difference between two classes, or with to nil
// between a class and the cell's prefixes.
func (c *cell) add(from, to *class) {
	if _, has := c.to[from]; !has {
		c.froms = append(c.froms, from)
	}
	if to != nil {
		c.to[from] = append(c.to[from], to)
	}
}

// list returns the differences: sources with the same destinations are in one, and both
// families if all else is the same. What closes comes first.
func (t *table) list() (out []Difference) {
	at := map[string]int{}
	for _, c := range t.order {
		for _, s := range c.sides() {
			k := c.key
			if k.outside == "" {
				k.v6 = false
			}
			text := fmt.Sprint(k, s.from, s.to)
			i, has := at[text]
			if !has {
				i = len(out)
				at[text], out = i, append(out, Difference{Opens: c.piece.opens, Ports: c.piece.ports, Before: c.piece.before, After: c.piece.after})
				out[i].From, out[i].To = sideOf(s.from), sideOf(s.to)
				switch c.key.outside {
				case model.In:
					out[i].From, out[i].To = Side{Prefixes: c.prefixes}, out[i].From
				case model.Out:
					out[i].To.Prefixes = c.prefixes
				}
			}
			out[i].IPv4, out[i].IPv6 = out[i].IPv4 || !c.key.v6, out[i].IPv6 || c.key.v6
		}
	}
	slices.SortStableFunc(out, func(a, b Difference) int {
		if a.Opens != b.Opens {
			if b.Opens {
				return -1
			}
			return 1
		}
		return cmp.Or(a.From.compare(b.From), a.To.compare(b.To), slices.CompareFunc(a.Ports.spans, b.Ports.spans, func(x, y span) int { return cmp.Compare(x.lo, y.lo) }))
	})
	return out
}

// between are classes between which a cell's piece is the difference.
type between struct{ from, to classes }

type classes []*class

// String is equal for equal lists.
func (all classes) String() string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprint(&b, c.index, " ")
	}
	return b.String()
}

// sides returns the sources that have the same destinations together.
func (c *cell) sides() (out []between) {
	at := map[string]int{}
	for _, from := range c.froms {
		to := classes(c.to[from])
		slices.SortFunc(to, func(a, b *class) int { return a.index - b.index })
		i, has := at[to.String()]
		if !has {
			i = len(out)
			at[to.String()], out = i, append(out, between{to: to})
		}
		out[i].from = append(out[i].from, from)
	}
	for _, s := range out {
		slices.SortFunc(s.from, func(a, b *class) int { return a.index - b.index })
	}
	return out
}

func sideOf(all classes) (s Side) {
	for _, c := range all {
		s.Endpoints = append(s.Endpoints, c.keys...)
	}
	slices.SortFunc(s.Endpoints, model.EndpointKey.Compare)
	return s
}

func (s Side) compare(o Side) int {
	return cmp.Or(
		slices.CompareFunc(s.Endpoints, o.Endpoints, model.EndpointKey.Compare),
		slices.CompareFunc(s.Prefixes, o.Prefixes, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }),
	)
}
