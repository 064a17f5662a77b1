package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

const maxRouter = uint32(model.RouterShared) - 1

// takeRouter takes a free number for a tenant's router.
func takeRouter(ctx context.Context, tx store.Tx, cl *allocator, t model.TenantName) (model.RouterID, error) {
	id, err := cl.freeNumber(ctx, tx, tables.NumberRouter, 1, maxRouter, string(t))
	if err != nil {
		return 0, err
	}
	return model.RouterID(id), tables.PutCursor(tx, tables.Cursor{Kind: tables.NumberRouter, Last: id})
}

func freeRouter(tx store.Tx, id model.RouterID) {
	if id != 0 {
		tables.Numbers.Delete(tx, tables.NumberKey{Kind: tables.NumberRouter, Number: uint32(id)})
	}
}

// GiveRouters is the leader's task of giving a router to each tenant that has
// none: the default tenant of a new store, and those of before there were routers.
// It returns when ctx ends or the leadership is lost.
func (ts *Tenants) GiveRouters(ctx context.Context, l Leader) error {
	return runWhenNeeded(ctx, &ts.tenantView.unrouted, func() bool { return len(ts.tenantView.withoutRouter()) > 0 },
		func() error { return ts.giveRouters(ctx, l) },
		func(err error) {
			ts.commits.log.Warn("not all tenants have a router; trying again", "error", err)
		})
}

func (ts *Tenants) giveRouters(ctx context.Context, l Leader) error {
	var last store.Revision
	for _, name := range ts.tenantView.withoutRouter() {
		cl := ts.commits.newAllocator(l.Actor())
		rev, err := ts.commits.update(ctx, l.Actor(), fmt.Sprintf("give tenant %q a router", name), func(tx store.Tx) error {
			cl.rewind()
			t, err := tables.Tenants.Find(tx, name)
			if err != nil || !t.Exists() || t.Value.Router != 0 {
				return err
			}
			if t.Value.Router, err = takeRouter(ctx, tx, cl, name); err != nil {
				return err
			}
			return tables.Tenants.Put(tx, t.Value)
		})
		cl.releaseAll(rev)
		if err != nil {
			return err
		}
		last = max(last, rev)
	}
	return ts.commits.follow.WaitFor(ctx, last)
}
