package store

import (
	"errors"

	"github.com/contiv/netplugin/v2/internal/model"
)

// ErrFenced: the caller is no longer the leader that it was when it started
// the write. It is of kind model.ErrConflict.
var ErrFenced = model.Errorf(model.ErrConflict, "leadership was lost before the write")

// ErrNewerRecord: a record was written by a newer version of this program and
// has fields that this one would lose; it is readable but not writable here.
var ErrNewerRecord = errors.New("record was written by a newer version; upgrade this process before changing it")

// ErrTooLarge: a transaction is more than the backend takes. It is of
// kind model.ErrInvalid.
var ErrTooLarge = model.Errorf(model.ErrInvalid, "request is too large for one transaction")

// ErrSessionLost: a key was to be put with a session that has ended. It is of
// kind model.ErrUnavailable, since a new session may work.
var ErrSessionLost = model.Errorf(model.ErrUnavailable, "the session has ended")

// ErrCompacted is what a Backend answers to a read at a revision that the store
// keeps no more. It never leaves Update or Mirror.
var ErrCompacted = errors.New("the store has compacted that revision")

// ErrSourceChanged is the state of a mirror that goes on from another place than before: for some
// seconds what it has delivered may be old. If it cannot go on, another error follows.
var ErrSourceChanged = model.Errorf(model.ErrUnavailable, "the mirror continues from another source")
