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
