package control

import (
	"context"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// groupOwner begins the owner of a number that is a group's. No network's key has a
// space.
const groupOwner = "group "

// takeSegment gives a new group its VLAN and its segment's number, if it is to have
// such ones: with infrastructure type aci, on a network of encap vlan.
func takeSegment(ctx context.Context, tx store.Tx, cl *allocator, n model.Network, g *model.Group) error {
	if n.Encap != model.EncapVLAN {
		return nil // and nothing is read: Consul counts it
	}
	s, err := tables.Globals.Get(tx, tables.GlobalKey{})
	if err != nil || s.Infra != model.InfraACI {
		return err
	}
	owner := groupOwner + g.Key.String()
	tag, err := cl.freeVLAN(ctx, tx, s.VLANs, owner)
	if err != nil {
		return err
	}
	id, err := cl.freeNumber(ctx, tx, tables.NumberNetwork, 1, 65535, owner)
	if err != nil {
		return err
	}
	g.VLAN, g.Segment = uint16(tag), model.NetworkID(id)
	return tables.PutCursor(tx, tables.Cursor{Kind: tables.NumberNetwork, Last: id})
}

func freeSegment(tx store.Tx, g model.Group) {
	if g.VLAN != 0 {
		tables.Numbers.Delete(tx, tables.NumberKey{Kind: tables.NumberVLAN, Number: uint32(g.VLAN)})
	}
	if g.Segment != 0 {
		tables.Numbers.Delete(tx, tables.NumberKey{Kind: tables.NumberNetwork, Number: uint32(g.Segment)})
	}
}

func wantsOfSegment(g model.Group) (out []expectedRow) {
	owner := groupOwner + g.Key.String()
	mine := func(x tables.Number) bool { return x.Owner == owner }
	if g.VLAN != 0 {
		out = append(out, wantNumber(tables.NumberVLAN, uint32(g.VLAN), owner, mine))
	}
	if g.Segment != 0 {
		out = append(out, wantNumber(tables.NumberNetwork, uint32(g.Segment), owner, mine))
	}
	return out
}

// tagOwner names who has a tag.
func tagOwner(n tables.Number) string {
	if strings.HasPrefix(n.Owner, groupOwner) {
		return n.Owner
	}
	return "network " + n.Owner
}

// ofNetwork names whose the number of a network or of a group's segment is.
func ofNetwork(n tables.Number) string {
	if group, is := strings.CutPrefix(n.Owner, groupOwner); is {
		return "that of group " + group
	}
	return n.Owner
}
