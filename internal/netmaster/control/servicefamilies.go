package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// completeServices gives services the addresses that they lack. It logs networks
// without room, and goes on with the other services.
func (ss *Services) completeServices(ctx context.Context, l Leader, v *View) error {
	full := 0
	var example error
	for _, s := range v.Services.List("") {
		if !v.Services.missesFamily(s) {
			continue
		}
		cl := ss.commits.newAllocator(l.Actor())
		rev, err := ss.commits.update(ctx, l.Actor(), fmt.Sprintf("complete load-balanced service %q", s.Key), func(tx store.Tx) error {
			cl.rewind()
			row, err := tables.LoadBalancers.Find(tx, s.Key)
			if err != nil || !row.Exists() {
				return err
			}
			now := row.Value
			if err := ss.allocateAddrs(ctx, tx, cl, &now); err != nil || now.Equal(row.Value) {
				return err
			}
			return tables.LoadBalancers.Put(tx, now)
		})
		cl.releaseAll(rev)
		switch {
		case errors.Is(err, model.ErrExhausted):
			full, example = full+1, err
		case err != nil:
			return err
		}
	}
	if full > 0 {
		ss.commits.log.Warn("services lack an address of a family that their network has", "services", full, "error", example)
	}
	return nil
}
