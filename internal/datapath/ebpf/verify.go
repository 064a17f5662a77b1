package ebpf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Verify implements driver.Verifier. Between two tables an Apply may come.
func (d *Driver) Verify(ctx context.Context) (int, error) {
	began := time.Now()
	for i := 0; ; i++ {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("ebpf driver: %w", err)
		}
		more, err := d.verifyTable(i)
		if err != nil {
			return 0, fmt.Errorf("ebpf driver: %w", err)
		}
		if !more {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dp.tables.verified = began
	d.dp.ports.verified = time.Time{} // the next Apply checks the programs of every port
	n := 0
	for _, x := range d.dp.tables.filled {
		_, s := x.fill()
		n += int(s.Entries)
	}
	return n, nil
}

// verifyTable compares one table with what was written; more = there was such a table.
func (d *Driver) verifyTable(i int) (more bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return false, model.Errorf(model.ErrUnavailable, "it is closed")
	case !d.dp.applied.known:
		return false, model.Errorf(model.ErrUnavailable, "the desired state is not in force")
	case i >= len(d.dp.tables.all):
		return false, nil
	}
	u, _, err := d.dp.tables.compareOne(d.dp.tables.all[i], time.Time{})
	if u.n() > 0 {
		err = errors.Join(err, d.dp.settings.newGeneration())
	}
	return true, err
}
