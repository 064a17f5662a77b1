package hoststack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

const (
	elementsPerMessage = 1 << 15  // elements after which a transaction ends with a front
	inMessage          = 500      // elements in a message: its list of them has a length of 16 bits
	buffers            = 16 << 20 // bytes: a transaction is sent as a whole, and each part of it is answered at its end
)

// write brings the table to what is wanted: in one transaction, unless that is very much;
// then each front is changed by one.
func (t *frontendTable) write(ctx context.Context) error {
	if t.frontends == 0 {
		if !t.there {
			return nil
		}
		return t.remove()
	}
	order := make([]element, 0, len(t.dirty))
	for e := range t.dirty {
		order = append(order, e)
	}
	if len(order) > elementsPerMessage/4 { // else it is not worth while
		slices.SortFunc(order, func(a, b element) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.in, b.in)) })
	}
	for !t.made || len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(elementsPerMessage, len(order))
		for n > 0 && n < len(order) && t.frontendPart(order[n]) == t.frontendPart(order[n-1]) {
			n++
		}
		if err := t.writeSome(order[:n]); err != nil {
			return fmt.Errorf("write table %s of nftables: %w", ServicesTable, err)
		}
		for _, e := range order[:n] {
			delete(t.dirty, e)
		}
		order = order[n:]
	}
	return nil
}

// frontendOf is the part of an element's key that is its front's.
func (t *frontendTable) frontendPart(e element) string {
	n := 8
	if !strings.Contains(e.in, ofPorts) && e.in != setNodePorts && e.in != setClosed {
		n += int(t.addrType().Bytes)
	}
	return e.key[:min(n, len(e.key))]
}

func growBuffers(c *netlink.Conn) error {
	return errors.Join(c.SetReadBuffer(buffers), c.SetWriteBuffer(buffers))
}

// writeSome writes some elements, with the sets and rules that they need, in one transaction.
func (t *frontendTable) writeSome(some []element) error {
	c, err := t.conn()
	if err != nil {
		return err
	}
	var later []chain // rules that writeRules writes
	if !t.made {
		if later, err = t.make(c); err != nil {
			return err
		}
	}
	add, del := map[string][]nftables.SetElement{}, map[string][]nftables.SetElement{}
	times := map[string]int{} // how many more elements sets of times have then
	for _, e := range some {
		was, had := t.have[e]
		now, has := t.wanted[e]
		if had == has && was == now.to {
			continue
		}
		if had {
			del[e.in] = append(del[e.in], elementOf(e, was))
			delete(t.have, e)
			countTime(times, e.in, -1)
		}
		if has {
			add[e.in] = append(add[e.in], elementOf(e, now.to))
			t.have[e] = now.to
			countTime(times, e.in, 1)
		}
	}
	gone, keep, err := t.addTimes(c, times)
	if err != nil {
		return err
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
		c.DelSet(t.setOf(name))
	}
	if err := c.Flush(); err != nil {
		return err
	}
	t.made, t.there = true, true
	return t.writeRules(append(later, keep...))
}

// elementOf is an element as the library knows it.
func elementOf(e element, to string) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.key)}
	switch {
	case strings.HasPrefix(e.in, setFrom):
		out.KeyEnd = []byte(to)
	case to != "":
		out.Val = []byte(to)
	}
	return out
}
