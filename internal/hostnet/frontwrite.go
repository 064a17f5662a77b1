package hostnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
)

const (
	atOnce        = 1 << 15  // elements after which a transaction ends with a front
	targetsAtOnce = 4096     // and targets of chains, unless one chain has more
	buffers       = 16 << 20 // bytes: a transaction is sent as a whole, and each part of it is answered at its end
)

// write brings the table to what is wanted: in one transaction, unless that is very much;
// then each front is changed by one.
func (t *frontTable) write(ctx context.Context) error {
	if t.fronts == 0 {
		if !t.there {
			return nil
		}
		return t.remove()
	}
	order := make([]element, 0, len(t.dirty))
	for e := range t.dirty {
		order = append(order, e)
	}
	if len(order) > atOnce/4 { // else it is not worth while
		slices.SortFunc(order, func(a, b element) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.in, b.in)) })
	}
	for !t.made || len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, targets := 0, 0
		for ; n < len(order); n++ {
			if (n >= atOnce || targets >= targetsAtOnce) && t.frontOf(order[n]) != t.frontOf(order[n-1]) {
				break
			}
			if x := t.chains[t.wanted[order[n]].to]; x != nil {
				targets += len(x.targets)
			}
		}
		if err := t.writeSome(order[:n]); err != nil {
			return fmt.Errorf("write table %s of nftables: %w", FrontsTable, err)
		}
		for _, e := range order[:n] {
			delete(t.dirty, e)
		}
		order = order[n:]
	}
	return t.forgetTidy()
}

// frontOf is the part of an element's key that is its front's.
func (t *frontTable) frontOf(e element) string {
	n := 8
	if !strings.Contains(e.in, ofPorts) && e.in != setNodePorts && e.in != setClosed {
		n += int(t.addrType().Bytes)
	}
	return e.key[:min(n, len(e.key))]
}

func (t *frontTable) conn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(buffers), c.SetWriteBuffer(buffers))
	}))
}

// writeSome writes some elements, with the chains that they need, in one transaction.
func (t *frontTable) writeSome(some []element) error {
	c, err := t.conn()
	if err != nil {
		return err
	}
	if !t.made {
		if err := t.make(c); err != nil {
			return err
		}
	}
	add, del := map[string][]nftables.SetElement{}, map[string][]nftables.SetElement{}
	touched := map[string]bool{} // chains that get or lose elements
	for _, e := range some {
		was, had := t.have[e]
		now, has := t.wanted[e]
		if had == has && was == now.to {
			continue
		}
		if had {
			del[e.in] = append(del[e.in], elementOf(e, was))
			delete(t.have, e)
			t.lead(touched, was, -1)
		}
		if has {
			add[e.in] = append(add[e.in], elementOf(e, now.to))
			t.have[e] = now.to
			t.lead(touched, now.to, 1)
		}
	}
	var gone []string
	for name := range touched {
		switch n := t.leads[name]; {
		case n > 0 && !t.is[name]:
			if err := t.addChain(c, name); err != nil {
				return err
			}
		case n == 0 && t.is[name]:
			gone = append(gone, name)
		}
	}
	for _, list := range []struct {
		all map[string][]nftables.SetElement
		put func(*nftables.Set, []nftables.SetElement) error
	}{{del, c.SetDeleteElements}, {add, c.SetAddElements}} {
		for name, elements := range list.all {
			for part := range slices.Chunk(elements, inMessage) {
				if err := list.put(t.setOf(name), part); err != nil {
					return err
				}
			}
		}
	}
	for _, name := range gone {
		c.DelChain(&nftables.Chain{Name: name, Table: t.table})
		delete(t.is, name)
		delete(t.leads, name)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	t.made, t.there = true, true
	return nil
}

// elementOf is an element as the library knows it.
func elementOf(e element, to string) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.key)}
	switch {
	case strings.HasSuffix(e.in, suffixApart):
		out.VerdictData = verdictOf(to)
	case strings.HasPrefix(e.in, setFrom):
		out.KeyEnd = []byte(to)
	case to != "":
		out.Val = []byte(to)
	}
	return out
}

// lead1 counts an element that leads to a chain of clients that stay.
func (t *frontTable) lead(touched map[string]bool, to string, by int) {
	if strings.HasPrefix(to, "to-") {
		t.leads[to] += by
		touched[to] = true
	}
}

// verdictOf leads to a chain.
func verdictOf(to string) *expr.Verdict {
	switch to {
	case toDrop:
		return &expr.Verdict{Kind: expr.VerdictDrop}
	case toReturn:
		return &expr.Verdict{Kind: expr.VerdictReturn}
	case chainFrom, chainFrom + ofPorts: // who is not dropped goes on
		return &expr.Verdict{Kind: expr.VerdictJump, Chain: to}
	}
	return &expr.Verdict{Kind: expr.VerdictGoto, Chain: to}
}

// forgetTidy takes away what no chain of clients that stay needs any more: maps of
// clients, clients of former targets, and chains of these.
func (t *frontTable) forgetTidy() error {
	if len(t.tidy) == 0 {
		return nil
	}
	c, err := t.conn()
	if err != nil {
		return err
	}
	members := map[string]map[string]bool{} // of maps of clients
	for name := range t.tidy {
		members[name] = map[string]bool{}
		needed := map[string]bool{}
		for chain := range t.users[name] {
			x := t.chains[chain]
			for _, to := range x.targets {
				needed[x.partOf(to)], members[name][targetKey(to)] = true, true
			}
		}
		for part := range t.parts[name] {
			if !needed[part] {
				c.DelChain(&nftables.Chain{Name: part, Table: t.table})
				delete(t.parts[name], part)
			}
		}
		if t.stays[name] && len(t.users[name]) == 0 {
			c.DelSet(&nftables.Set{Table: t.table, Name: name})
			delete(t.stays, name)
		}
		if len(t.parts[name]) == 0 {
			delete(t.parts, name)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table %s of nftables: %w", FrontsTable, err)
	}
	for name := range t.tidy {
		if !t.stays[name] {
			continue
		}
		if err := t.forgetClients(t.stayOf(name), members[name]); err != nil {
			return err
		}
	}
	clear(t.tidy)
	return nil
}

// forgetClients forgets clients that were with somebody who is no target any more.
func (t *frontTable) forgetClients(of *nftables.Set, members map[string]bool) error {
	for {
		c, err := t.conn()
		if err != nil {
			return err
		}
		all, err := c.GetSetElements(of)
		if err != nil {
			return fmt.Errorf("read map %s of nftables: %w", of.Name, err)
		}
		var gone []nftables.SetElement
		for _, e := range all {
			if !members[string(e.Val)] {
				gone = append(gone, nftables.SetElement{Key: e.Key, Val: e.Val})
			}
		}
		for part := range slices.Chunk(gone, inMessage) {
			if err := c.SetDeleteElements(of, part); err != nil {
				return err
			}
		}
		if err := c.Flush(); !isMissing(err) { // then the time of one of them was over just now
			return err
		}
	}
}
