package control

import (
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/store"
)

const (
	partSize    = 32 // with how many elements of a long list one transaction begins
	partsAtOnce = 8  // how many transactions of one list are under way at a time
)

// inParts commits a long list in transactions, several at a time, since each waits for the
// store most of its time. A part that is too large for a transaction is halved. No part
// begins after one has failed; the error is the first failed part's in list order.
func inParts[T any](list []T, do func(part []T) error) error {
	var g errgroup.Group
	g.SetLimit(partsAtOnce)
	var failed atomic.Bool
	var errs []*error
	for part := range slices.Chunk(list, partSize) {
		if failed.Load() {
			break
		}
		err := new(error)
		errs = append(errs, err)
		g.Go(func() error {
			if *err = inHalves(part, do); *err != nil {
				failed.Store(true)
			}
			return nil
		})
	}
	_ = g.Wait() // errs has them
	for _, err := range errs {
		if *err != nil {
			return *err
		}
	}
	return nil
}

func inHalves[T any](part []T, do func([]T) error) error {
	err := do(part)
	if !errors.Is(err, store.ErrTooLarge) || len(part) == 1 {
		return err
	}
	half := len(part) / 2
	if err := inHalves(part[:half], do); err != nil {
		return err
	}
	return inHalves(part[half:], do)
}
