package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// Group is a select group: a Choose action sends a packet through one of its
// buckets, the one that scores highest for the packet (rendezvous hashing over
// Fields, by Netronome's selection method "hash").
type Group struct {
	ID      uint32  // below MaxGroup
	Seed    uint64  // groups with other seeds choose in another way
	Fields  []Field // what the choice depends on; of these, the ones that a packet has
	Buckets []Bucket
}

// Bucket is one choice of a group. Its ID is its own in all groups, since scores are
// made of it; below MaxGroup.
type Bucket struct {
	ID      uint32
	Actions []Action
}

// MaxGroup bounds the numbers of groups and buckets.
const MaxGroup = 0xffffff00

// MaxBuckets is how many buckets a group may have: the switch lists a group in one
// message.
const MaxBuckets = 4092

// GroupMod is one change of a bridge's groups.
type GroupMod struct {
	Delete bool // and the flows that lead to the group; else it is added, or replaced
	Group  Group
}

// Messages of OpenFlow 1.5 (1.5.1 sections 7.3.4.3 and A.3.5.6): only there buckets
// have IDs. Experimenter Netronome.
const (
	version15 = 0x06

	typeGroupMod       = 15
	multipartGroup     = 6
	multipartGroupDesc = 7

	groupAddOrModify = 0x8000 // Open vSwitch's own
	groupDelete      = 2
	groupInsert      = 3
	groupSelect      = 1
	bucketLast       = 0xfffffffe
	bucketAll        = 0xffffffff
	groupAll         = 0xfffffffc

	netronome       = 0x0000154d
	selectionMethod = 1

	// bucketsPerMessage keeps a message below 64 kB.
	bucketsPerMessage = 400
)

// Groups is a connection to a bridge by which its groups are changed.
type Groups struct{ *Conn }

// DialGroups connects as Dial does, in OpenFlow 1.5.
func DialGroups(ctx context.Context, path string) (Groups, error) {
	c, err := dial(ctx, path, version15)
	return Groups{c}, err
}

// Change applies changes of groups, in order, as one bundle: an error means none.
func (g Groups) Change(ctx context.Context, mods []GroupMod) error {
	var parts []groupPart
	for _, m := range mods {
		rest := m.Group.Buckets
		for first := true; first || len(rest) > 0; first = false {
			n := min(len(rest), bucketsPerMessage)
			parts = append(parts, groupPart{m, rest[:n], !first})
			if rest = rest[n:]; m.Delete {
				break
			}
		}
	}
	return g.bundle(ctx, len(parts),
		func(b []byte, xid uint32, i int) ([]byte, error) { return parts[i].append(b, xid) },
		func(i int) string { return fmt.Sprintf("group %d", parts[i].Group.ID) })
}

// groupPart is a message of a group's change: with some of its buckets.
type groupPart struct {
	GroupMod
	buckets []Bucket
	more    bool // the group is there, and these come to it
}

func (p groupPart) append(b []byte, xid uint32) ([]byte, error) {
	be, start := binary.BigEndian, len(b)
	command, bucket := uint16(groupAddOrModify), uint32(bucketAll)
	switch {
	case p.Delete:
		command = groupDelete
	case p.more:
		command, bucket = groupInsert, bucketLast
	}
	b = appendMessage(b, typeGroupMod, xid)
	b = be.AppendUint16(b, command)
	b = append(b, groupSelect, 0)
	b = be.AppendUint32(b, p.Group.ID)
	b = append(b, 0, 0, 0, 0) // length of buckets
	b = be.AppendUint32(b, bucket)
	if p.Delete {
		return finish(b, start), nil
	}
	at := len(b)
	for _, x := range p.buckets {
		b = appendBucket(b, x)
	}
	if len(b)-at > maxMessage/2+maxMessage/4 {
		return nil, fmt.Errorf("buckets of group %d take %d bytes", p.Group.ID, len(b)-at)
	}
	be.PutUint16(b[start+headerLen+8:], uint16(len(b)-at))
	if p.more {
		return finish(b, start), nil
	}
	return finish(p.Group.appendSelection(b), start), nil
}

// appendSelection writes the group's property that says how it chooses.
func (g Group) appendSelection(b []byte) []byte {
	be, at := binary.BigEndian, len(b)
	b = be.AppendUint32(appendHeader(b, actExperiment, 0), netronome)
	b = append(be.AppendUint32(b, selectionMethod), 0, 0, 0, 0)
	b = append(append(b, "hash"...), make([]byte, 12)...)
	b = be.AppendUint64(b, g.Seed)
	for _, f := range g.Fields {
		b = appendOXM(b, f, ones(f.Bits(), f.Bits()), ones(f.Bits(), f.Bits()))
	}
	be.PutUint16(b[at+2:], uint16(len(b)-at)) // without padding
	for (len(b)-at)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// appendBucket writes a struct ofp15_bucket, of weight 1.
func appendBucket(b []byte, x Bucket) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, x.ID)
	b = appendActions(b, x.Actions)
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start-8))
	b = append(b, 0, 0, 0, 8, 0, 1, 0, 0) // property weight
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start))
	return b
}

// Body is all of a group but its ID, opaque and comparable.
func (g Group) Body() string {
	b := binary.BigEndian.AppendUint64(nil, g.Seed)
	for _, f := range g.Fields {
		b = append(b, byte(f))
	}
	for _, x := range g.Buckets {
		b = appendBucket(b, x)
	}
	return string(b)
}

// Contents is all of a group but its ID as the switch describes it, opaque and comparable.
func (g Group) Contents() string {
	var b []byte
	for _, x := range g.Buckets {
		b = appendBucket(b, x)
	}
	return string(g.appendSelection(b))
}

// Describable is how many buckets a group has at most whose contents are asked for. The
// switch describes a group in one message; ovs-vswitchd 3.1 ends when that is too small.
const Describable = bucketsPerMessage

// Contents returns what some groups of the bridge hold. None may have more buckets than
// Describable.
func (g Groups) Contents(ctx context.Context, ids []uint32) (map[uint32]string, error) {
	out := map[uint32]string{}
	for _, id := range ids {
		err := g.multipart(ctx, "describe groups", func(xid uint32) []byte {
			b := appendMultipart(nil, xid, multipartGroupDesc)
			b = binary.BigEndian.AppendUint32(b, id)
			return finish(append(b, 0, 0, 0, 0), 0)
		}, func(b []byte) error { return readContents(b, out) })
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readContents reads structs ofp15_group_desc.
func readContents(b []byte, out map[uint32]string) error {
	const header = 16
	be := binary.BigEndian
	for len(b) > 0 {
		n := 0
		if len(b) >= header {
			n = int(be.Uint16(b))
		}
		if n < header || n > len(b) || header+int(be.Uint16(b[8:])) > n {
			return errors.New("a description of a group is truncated")
		}
		out[be.Uint32(b[4:])] = string(b[header:n])
		b = b[n:]
	}
	return nil
}

// List returns the numbers of all groups of the bridge, with how many buckets they
// have.
func (g Groups) List(ctx context.Context) (map[uint32]int, error) {
	out := map[uint32]int{}
	err := g.multipart(ctx, "list groups", func(xid uint32) []byte {
		b := appendMultipart(nil, xid, multipartGroup)
		b = binary.BigEndian.AppendUint32(b, groupAll)
		return finish(append(b, 0, 0, 0, 0), 0)
	}, func(b []byte) error {
		for len(b) > 0 {
			n := 0
			if len(b) >= 40 {
				n = int(binary.BigEndian.Uint16(b))
			}
			if n < 40 || n > len(b) {
				return errors.New("group counters are truncated")
			}
			out[binary.BigEndian.Uint32(b[4:])] = (n - 40) / 16
			b = b[n:]
		}
		return nil
	})
	return out, err
}
