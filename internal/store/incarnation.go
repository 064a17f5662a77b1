package store

import (
	"fmt"
	"slices"
	"time"
)

// Incarnation says which store this is, and since which restore: a netmaster
// writes it once, with the defaults of a new cluster; a restore from a backup
// gives it another epoch. Agents and netmasters that have followed one store
// do not take another, or an older state of it, for intent.
type Incarnation struct {
	ID         string `json:"id"`    // a UUID; "" = the store has none: it is empty, or from before there were any
	Generation int64  `json:"epoch"` // grows with each restore: 1, then seconds since 1970
	Since      string `json:"since"` // RFC 3339: when the epoch began
	// Replaces are ids of stores whose followers an operator has told to follow
	// this one instead.
	Replaces []string `json:"replaces,omitempty"`
}

// Same reports whether two incarnations are the same epoch of the same store.
func (i Incarnation) Same(o Incarnation) bool { return i.ID == o.ID && i.Generation == o.Generation }

// Succeeds reports whether who followed the store old is to follow this one: it
// is a later epoch of it, or an operator has said so.
func (i Incarnation) Succeeds(old Incarnation) bool {
	return i.ID != "" && (i.ID == old.ID && i.Generation > old.Generation || slices.Contains(i.Replaces, old.ID))
}

// Next is the epoch that the store gets by a restore, or when an operator has hosts follow
// it: later than all that any host has seen of it, also when a backup is restored twice.
func (i Incarnation) Next(now time.Time) int64 { return max(i.Generation+1, now.Unix()) }

// Mark is how a host's record names the store that the host follows.
func (i Incarnation) Mark() string {
	if i.ID == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", i.ID, i.Generation)
}

func (i Incarnation) String() string {
	if i.ID == "" {
		return "a store without identity"
	}
	return fmt.Sprintf("store %s, epoch %d", i.ID, i.Generation)
}

// IncarnationOf reads the identity of a store from its record; one that cannot
// be read is none.
func IncarnationOf(kv KV) Incarnation {
	if !kv.Exists() {
		return Incarnation{}
	}
	i, _, err := DecodeRecord[Incarnation](kv.Value)
	if err != nil {
		return Incarnation{}
	}
	return i
}
