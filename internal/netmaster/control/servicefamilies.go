package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// lacksFamily tells whether a service has no address of a family that its network
// has: it was made before services had one of each.
func (sv *ServiceView) lacksFamily(s model.Service) bool {
	n, ok := sv.networks.Get(s.NetworkKey())
	v4, v6 := s.Addrs()
	return ok && (n.Subnet.IsValid() && !v4.IsValid() || n.Subnet6.IsValid() && !v6.IsValid())
}

// completeServices gives services the addresses that they lack. A network without
// room is told, and no obstacle to others.
func (ss *Services) completeServices(ctx context.Context, fence store.Fence, v *View) error {
	full := 0
	var example error
	for _, s := range v.Services.List("") {
		if !v.Services.lacksFamily(s) {
			continue
		}
		cl := ss.commits.claim(Admin())
		rev, err := ss.commits.update(ctx, fmt.Sprintf("complete load-balanced service %q", s.Key), func(tx store.Tx) error {
			cl.rewind()
			fence.Require(tx)
			row, err := tables.LoadBalancers.Find(tx, s.Key)
			if err != nil || !row.Exists() {
				return err
			}
			now := row.Value
			if err := ss.giveAddrs(ctx, tx, cl, &now); err != nil || sameService(now, row.Value) {
				return err
			}
			return tables.LoadBalancers.Put(tx, now)
		})
		cl.done(rev)
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
