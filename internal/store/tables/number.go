package tables

import (
	"fmt"
	"strconv"

	"github.com/contiv/netplugin/v2/internal/store"
)

// NumberKind says what is numbered.
type NumberKind string

// The kinds of numbers.
const (
	NumberVLAN     NumberKind = "vlan"
	NumberVNI      NumberKind = "vni"
	NumberNetwork  NumberKind = "network"
	NumberIdentity NumberKind = "identity"
	NumberRouter   NumberKind = "router"
)

// NumberKey is one number of a kind.
type NumberKey struct {
	Kind   NumberKind `json:"kind"`
	Number uint32     `json:"number"`
}

// Number says who has a number.
type Number struct {
	NumberKey
	Owner string `json:"owner"` // for people: a network's key, "group " and a group's, a tenant, or an identity's contents
}

// NumbersOf is the scope of all numbers of a kind.
func NumbersOf(kind NumberKind) string { return AllocPrefix + "number/" + string(kind) + "/" }

// Numbers holds the numbers in use.
var Numbers = declare(TableSpec[NumberKey, Number]{
	Noun: "number", Version: 1,
	Path: "state/alloc/number/*/*",
	Parse: func(n []string) (NumberKey, bool) {
		v, err := strconv.ParseUint(n[1], 16, 32)
		return NumberKey{NumberKind(n[0]), uint32(v)}, err == nil
	},
	KeyOf: func(n Number) NumberKey { return n.NumberKey },
	Show:  func(k NumberKey) string { return string(k.Kind) + " " + strconv.FormatUint(uint64(k.Number), 10) },
	Scope: func(k NumberKey) string { return NumbersOf(k.Kind) },
	Name:  func(k NumberKey) string { return fmt.Sprintf("%08x", k.Number) },
})

// Cursor is the last number handed out of a kind: the search goes on after it,
// also in another process, so that freed numbers are not used again soon.
type Cursor struct {
	Kind NumberKind `json:"kind"`
	Last uint32     `json:"last"`
}

// CursorKey names a cursor.
type CursorKey struct{ Kind NumberKind }

// Cursors holds where the searches for free numbers go on.
var Cursors = declare(TableSpec[CursorKey, Cursor]{
	Noun: "cursor", Version: 1, Unlisted: true,
	Path:  "state/alloc/cursor/*",
	Parse: func(n []string) (CursorKey, bool) { return CursorKey{NumberKind(n[0])}, true },
	KeyOf: func(c Cursor) CursorKey { return CursorKey{c.Kind} },
	Scope: func(CursorKey) string { return AllocPrefix + "cursor/" },
	Name:  func(k CursorKey) string { return string(k.Kind) },
})

// PutCursor writes a cursor blindly: it is a hint, and the last writer wins.
func PutCursor(tx store.Tx, c Cursor) error {
	b, err := store.EncodeRecord(1, c)
	if err != nil {
		return err
	}
	tx.Put(Cursors.Key(CursorKey{c.Kind}), b, nil)
	return nil
}
